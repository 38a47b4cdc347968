//! Calls made by the driver: terms, and durability before `commits/N` is published.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::state::CommitId;
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Error, FileId, SegmentRef};
use jni::EnvUnowned;
use jni::objects::{JClass, JObjectArray, JString};
use jni::sys::{jint, jlong};

use crate::guard::with_env;

/// `Native.newestTerm(String dir): long`: the highest term that any file in `dir` carries, 0 when
/// there is none.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_newestTerm<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
) -> jlong {
    with_env(env, |env| {
        let listed = LocalStorage::new(dir.try_to_string(env)?).list()?;
        let newest = listed
            .iter()
            .filter_map(|object| FileId::parse(&object.name))
            .max();
        Ok(newest.map_or(0, |file| file.term.0 as jlong))
    })
}

/// `Native.syncReferenced(String dir, String[] ids): int`: makes every file that `ids` refer to
/// survive a machine crash; returns their number. A file that is gone, or shorter than a
/// reference into it, is an error.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_syncReferenced<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    ids: JObjectArray<'local, JString<'local>>,
) -> jint {
    with_env(env, |env| {
        let storage = LocalStorage::new(dir.try_to_string(env)?);
        let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
        for i in 0..ids.len(env)? {
            let text = ids.get_element(env, i)?;
            let id: CommitId = text.try_to_string(env)?.parse()?;
            env.delete_local_ref(text);
            if let Some(SegmentRef {
                file, offset, len, ..
            }) = id.segment
            {
                let end = ends.entry(file).or_default();
                *end = offset.saturating_add(len).max(*end);
            }
        }
        let files: BTreeSet<FileId> = ends.keys().copied().collect();
        for file in &files {
            storage.sync(&file.file_name())?;
        }
        for (file, end) in ends {
            let name = file.file_name();
            let found = storage.len(&name)?;
            if found < end {
                return Err(Error::corrupt(format!(
                    "{}/{name} has {found} bytes, the batch refers to {end}",
                    storage.location()
                ))
                .into());
            }
        }
        Ok(files.len() as jint)
    })
}
