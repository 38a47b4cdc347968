//! The storage conformance suite against a Hadoop file system: for tests, which build this library
//! with the feature `conformance` and bring the Java class.

use std::cell::Cell;
use std::sync::Arc;

use holdfast_core::storage::{HandlePool, PooledStorage, Storage};
use holdfast_sim::conformance;
use jni::objects::{JClass, JString};
use jni::sys::jint;
use jni::{Env, JValue, JavaVM, NativeMethod, jni_sig, jni_str, native_method};

use crate::guard::{Result, Throw};
use crate::hadoop::HadoopStorage;

const _: NativeMethod = native_method! {
    java_type = "io.holdfast.spark.merged.StorageConformance",
    error_policy = Throw,
    static extern fn run(parent: JString),
};

/// Runs each check twice, in fresh folders below `parent`: once directly, and once with handles of
/// a pool, as executors do.
fn run(env: &mut Env<'_>, class: JClass<'_>, parent: JString<'_>) -> Result<()> {
    let parent = parent.try_to_string(env)?;
    let class = env.new_global_ref(class)?;
    let next = Cell::new(0);
    let fresh = || {
        next.set(next.get() + 1);
        let open = |env: &mut Env<'_>| -> jni::errors::Result<HadoopStorage> {
            let name = env.new_string(&parent)?;
            let files = env
                .call_static_method(
                    &class,
                    jni_str!("fresh"),
                    jni_sig!("(Ljava/lang/String;I)Lio/holdfast/spark/merged/HadoopFolder;"),
                    &[JValue::Object(&name), JValue::Int(next.get() as jint)],
                )?
                .l()?;
            HadoopStorage::new(env, &files, format!("{parent}/{}", next.get()))
        };
        let opened = JavaVM::singleton().and_then(|vm| vm.attach_current_thread(open));
        match opened {
            Ok(storage) => Arc::new(storage) as Arc<dyn Storage>,
            Err(error) => panic!("no folder for the suite: {error}"),
        }
    };
    conformance::run(fresh);
    let pool = Arc::new(HandlePool::new(1));
    conformance::run(|| Arc::new(PooledStorage::new(fresh(), Arc::clone(&pool))));
    Ok(())
}
