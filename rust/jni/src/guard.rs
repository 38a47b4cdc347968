//! From Rust errors and panics to Java exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_core::{Error, ErrorKind};
use jni::errors::ErrorPolicy;
use jni::strings::{JNIStr, JNIString};
use jni::{Env, EnvUnowned, jni_str};

/// The reason why a native call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The core returned an error.
    Core(Error),
    /// A handle that was closed, or never existed.
    Closed(&'static str),
    /// A call of the JVM failed; usually an exception is pending already.
    Jni(jni::errors::Error),
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Self::Jni(error)
    }
}

const HOLDFAST_EXCEPTION: &JNIStr = jni_str!("io/holdfast/spark/HoldfastException");

/// Class and message of the Java exception for a failure.
fn java_exception(failure: &Failure) -> (&'static JNIStr, String) {
    let error = match failure {
        Failure::Closed(what) => {
            return (
                jni_str!("java/lang/IllegalStateException"),
                format!("this Holdfast {what} is closed"),
            );
        }
        Failure::Jni(error) => return (HOLDFAST_EXCEPTION, error.to_string()),
        Failure::Core(error) => error,
    };
    let class = match error.kind() {
        ErrorKind::NotFound => jni_str!("io/holdfast/spark/MissingStateException"),
        ErrorKind::Corrupt => jni_str!("io/holdfast/spark/DamagedStateException"),
        ErrorKind::Unsupported => jni_str!("io/holdfast/spark/UnsupportedStateException"),
        ErrorKind::Newer => jni_str!("io/holdfast/spark/NewerFormatException"),
        ErrorKind::Fenced => jni_str!("io/holdfast/spark/FencedException"),
        ErrorKind::InvalidInput => jni_str!("java/lang/IllegalArgumentException"),
        ErrorKind::LimitExceeded => {
            let message =
                format!("{error} (spark.sql.streaming.stateStore.holdfast.maxMemoryBytes)");
            return (HOLDFAST_EXCEPTION, message);
        }
        _ => HOLDFAST_EXCEPTION,
    };
    (class, error.to_string())
}

pub(crate) struct Throw;

impl<T: Default> ErrorPolicy<T, Failure> for Throw {
    type Captures<'local: 'method, 'method> = ();

    fn on_error<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _: &mut Self::Captures<'local, 'method>,
        failure: Failure,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            let (class, message) = java_exception(&failure);
            // The result only says that an exception is pending, as intended.
            let _ = env.throw_new(class, JNIString::new(message));
        }
        Ok(T::default())
    }

    fn on_panic<'local: 'method, 'method>(
        env: &mut Env<'local>,
        _: &mut Self::Captures<'local, 'method>,
        panic: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let said = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let message = format!("bug in Holdfast, please report it: {said}");
        let _ = env.throw_new(HOLDFAST_EXCEPTION, JNIString::new(message));
        Ok(T::default())
    }
}

/// Runs a native method that talks to the JVM.
pub(crate) fn with_env<'local, T: Default>(
    mut unowned: EnvUnowned<'local>,
    call: impl FnOnce(&mut Env<'local>) -> Result<T>,
) -> T {
    unowned.with_env(call).resolve::<Throw>()
}

/// Runs a native method that touches only primitives. It calls the JVM only if the method fails,
/// because rows take this way.
pub(crate) fn primitive<T: Default>(
    mut unowned: EnvUnowned<'_>,
    call: impl FnOnce() -> Result<T>,
) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => unowned
            .with_env(|_| Result::<T>::Err(failure))
            .resolve::<Throw>(),
        Err(panic) => unowned
            .with_env(|_| -> Result<T> { std::panic::resume_unwind(panic) })
            .resolve::<Throw>(),
    }
}

/// Exports functions as the native methods of `io.holdfast.spark.Native` with the same names. The
/// compiler compares the functions with the signatures here. The JVM compares these signatures with
/// its own when it links a method. A `raw` method touches only primitives, see [`primitive`]. The
/// others get and return [values of Rust](crate::convert), an `env` method also the environment.
macro_rules! natives {
    ($($guard:ident fn $name:ident($($arg:ident: $type:tt),*) $(-> $returns:tt)?;)*) => {$(
        const _: jni::NativeMethod = {
            fn guarded<'local>(
                env: jni::EnvUnowned<'local>,
                _: jni::objects::JClass<'local>,
                $($arg: $crate::guard::java!('local $type)),*
            ) $(-> $crate::guard::java!('local $returns))? {
                $crate::guard::guard!($guard env $name($($arg),*))
            }
            jni::native_method! {
                java_type = "io.holdfast.spark.Native",
                static raw extern fn $name($($arg: $type),*) $(-> $returns)?,
                fn = guarded,
            }
        };
    )*};
}

macro_rules! guard {
    (raw $env:ident $name:ident($($arg:ident),*)) => {
        $crate::guard::primitive($env, || $name($($arg),*))
    };
    (env $env:ident $name:ident($($arg:ident),*)) => {
        $crate::guard::with_env($env, |env| {
            $(let $arg = $crate::convert::Argument::of(env, $arg)?;)*
            $crate::convert::Answer::into_java($name(env, $($arg),*)?, env)
        })
    };
    (rust $env:ident $name:ident($($arg:ident),*)) => {
        $crate::guard::with_env($env, |env| {
            $(let $arg = $crate::convert::Argument::of(env, $arg)?;)*
            $crate::convert::Answer::into_java($name($($arg),*)?, env)
        })
    };
}

/// The Rust type of a value in a signature.
macro_rules! java {
    ($local:lifetime JString) => { jni::objects::JString<$local> };
    ($local:lifetime [JString]) => { $crate::convert::JStrings<$local> };
    ($local:lifetime [jlong]) => { jni::objects::JLongArray<$local> };
    ($local:lifetime [jbyte]) => { jni::objects::JByteArray<$local> };
    ($local:lifetime $class:literal) => { jni::objects::JObject<$local> };
    ($local:lifetime [$class:literal]) => { jni::objects::JObjectArray<$local> };
    ($local:lifetime $primitive:ident) => { $primitive };
}
pub(crate) use {guard, java, natives};
