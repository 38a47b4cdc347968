//! Calls made by the driver: terms, durability before `commits/N` is published, and reclaiming
//! files that no retained version needs.

use std::collections::{BTreeMap, HashSet};

use holdfast_core::liveness::Floors;
use holdfast_core::reclaim::{IndexCache, newest_term, reclaim};
use holdfast_core::state::CommitId;
use holdfast_core::{Error, FileId, SegmentRef, Term};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::strings::JNIStr;
use jni::sys::jlong;
use jni::{EnvUnowned, JValue, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::{LongRecord, file_id, java_file_ids, strings};
use crate::folders::storage;
use crate::guard::{primitive, with_env};
use crate::handles::Handles;

/// What a driver knows about sealed files, from one reclaim to the next.
static INDEX_CACHES: Handles<Mutex<IndexCache>> = Handles::new("index cache");

/// `Native.openIndexCache(): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openIndexCache<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jlong {
    primitive(env, || Ok(INDEX_CACHES.insert(Mutex::default())))
}

/// `Native.closeIndexCache(long cache)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeIndexCache<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    cache: jlong,
) {
    primitive(env, || {
        INDEX_CACHES.remove(cache);
        Ok(())
    });
}

/// `Native.newestTerm(String dir, HadoopFiles files): long`: the highest term that any file in
/// `dir` carries, 0 when there is none. Terms that no manager was given do not count.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_newestTerm<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
) -> jlong {
    with_env(env, |env| {
        let newest = newest_term(storage(env, &dir, &files)?.as_ref())?;
        Ok(newest.map_or(0, |term| term.0 as jlong))
    })
}

/// `record FileEnd(long term, long number, long end)`.
const FILE_END: LongRecord = LongRecord {
    class: jni_str!("io/holdfast/spark/files/FileEnd"),
    constructor: jni_sig!("(JJJ)V"),
};

/// `Native.referencedEnds(String[] ids): FileEnd[]`: the files that `ids` refer to, each with the end
/// of the last segment that is referred to.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_referencedEnds<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    ids: JObjectArray<'local, JString<'local>>,
) -> JObjectArray<'local> {
    with_env(env, |env| {
        let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
        for text in strings(env, &ids)? {
            if let Some(SegmentRef {
                file, offset, len, ..
            }) = text.parse::<CommitId>()?.segment
            {
                let end = ends.entry(file).or_default();
                *end = offset.saturating_add(len).max(*end);
            }
        }
        let rows: Vec<_> = ends
            .iter()
            .map(|(file, end)| [file.term.0, u64::from(file.seq), *end])
            .collect();
        FILE_END.array(env, &rows)
    })
}

/// `Native.adoptFile(String dir, HadoopFiles files, long term, long number, long end)`: makes a file
/// whose writer is gone survive a machine crash, as far as storage can do that for the file of
/// another process, and checks that nothing of it is missing before `end`. A file that is gone, or
/// shorter, is an error.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_adoptFile<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
    term: jlong,
    number: jlong,
    end: jlong,
) {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        let name = file_id(Term(term as u64), number)?.file_name();
        if storage.capabilities().sync_by_name {
            storage.sync(&name)?;
        }
        let found = storage.len(&name)?;
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        if found < end {
            return Err(Error::corrupt(format!(
                "{}/{name} has {found} bytes, the batch refers to {end}",
                storage.location()
            ))
            .into());
        }
        Ok(())
    });
}

/// `record Reclaimed(String done, long files, long bytes, long physicalBytes, long pinnedBytes,
/// FileId[] wasteful)`.
const RECLAIMED: &JNIStr = jni_str!("io/holdfast/spark/files/Reclaimed");

/// `Native.reclaim(long cache, String dir, HadoopFiles files, String[] partitions, String[] ids,
/// long[] liveTerms, long newestTerm): Reclaimed`: deletes the files that take no more
/// appends and hold nothing that a retained version needs.
///
/// `cache` knows the files that earlier calls found sealed. `ids[i]` is the id of a store of
/// `partitions[i]` (`operator/partition`) in the oldest retained entry of the commit log;
/// `liveTerms` are the terms that may still append, `newestTerm` is the newest that was given.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_reclaim<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    cache: jlong,
    dir: JString<'local>,
    files: JObject<'local>,
    partitions: JObjectArray<'local, JString<'local>>,
    ids: JObjectArray<'local, JString<'local>>,
    live_terms: JLongArray<'local>,
    newest: jlong,
) -> JObject<'local> {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        let mut floors = Floors::default();
        for (partition, id) in strings(env, &partitions)?
            .into_iter()
            .zip(strings(env, &ids)?)
        {
            let id: CommitId = id.parse()?;
            floors.add(&partition, id.owner, id.floor, id.deltas);
        }
        let mut terms = vec![0; live_terms.len(env)?];
        live_terms.get_region(env, 0, &mut terms)?;
        let live: HashSet<Term> = terms.into_iter().map(|term| Term(term as u64)).collect();
        let may_append = |term: Term| live.contains(&term);
        let newest = Term(newest as u64);
        let indexes = INDEX_CACHES.get(cache)?;
        let report = reclaim(
            storage.as_ref(),
            &mut indexes.lock(),
            &floors,
            &may_append,
            newest,
        )?;
        let space = &report.space;
        let done = env.new_string(report.summary())?;
        let wasteful = java_file_ids(env, &space.wasteful)?;
        Ok(env.new_object(
            RECLAIMED,
            jni_sig!("(Ljava/lang/String;JJJJ[Lio/holdfast/spark/files/FileId;)V"),
            &[
                JValue::Object(&done),
                JValue::Long(report.kept.len() as jlong),
                JValue::Long(report.kept_bytes as jlong),
                JValue::Long(space.physical_bytes as jlong),
                JValue::Long(space.pinned_bytes() as jlong),
                JValue::Object(&wasteful),
            ],
        )?)
    })
}
