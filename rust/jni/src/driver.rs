//! Calls made by the driver: terms, durability before `commits/N` is published, and reclaiming
//! files that no retained version needs.

use std::collections::{BTreeMap, HashSet};

use holdfast_core::commits::{Facts, Failure, Step, Writer, next_step as next};
use holdfast_core::leases::{Now, read_leases};
use holdfast_core::liveness::{Floors, Leased, Needed};
use holdfast_core::reclaim::{self, IndexCache, KnownTerms, encode_finished};
use holdfast_core::segment::create_from_copies as create;
use holdfast_core::state::VersionId;
use holdfast_core::storage::set_local_umask as set_umask;
use holdfast_core::{ErrorKind, FileId, Term, terms};
use jni::objects::{JObject, JObjectArray};
use jni::strings::JNIStr;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, JValue, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::{Answer, LongRecords, file_id, file_records};
use crate::folders::{readable, storage};
use crate::guard::{Result, natives};
use crate::handles::Handles;

/// Facts about sealed files that a driver keeps from one reclaim to the next.
static INDEX_CACHES: Handles<Mutex<IndexCache>> = Handles::new("index cache");

fn open_index_cache() -> Result<jlong> {
    Ok(INDEX_CACHES.insert(Mutex::default()))
}

fn close_index_cache(cache: jlong) -> Result<()> {
    INDEX_CACHES.remove(cache);
    Ok(())
}

fn set_local_umask(umask: jint) -> Result<()> {
    set_umask(u32::try_from(umask).ok());
    Ok(())
}

/// The newest term of a file in `dir` that is none of `own`, and the newest that is; 0 without one.
fn newest_terms(
    env: &mut Env<'_>,
    dir: String,
    files: JObject<'_>,
    own: Vec<jlong>,
) -> Result<Vec<jlong>> {
    let storage = storage(env, dir, &files)?;
    let newest = terms::newest_terms(storage.as_ref(), &all(own))?;
    Ok(vec![newest.foreign.0 as jlong, newest.own.0 as jlong])
}

/// The kind of the step, in the order of Java's `Terms.Step`, and its term. `older` is negative
/// before a look.
fn next_term(
    older: jlong,
    marker: jlong,
    runs: jboolean,
    newest: jlong,
    held: jlong,
    clock: jlong,
) -> Result<Vec<jlong>> {
    let term = |term: jlong| Term(term as u64);
    let facts = terms::Facts {
        older: (older >= 0).then_some(term(older)),
        marker: term(marker),
        runs,
        newest: term(newest),
        held: term(held),
        clock: term(clock),
    };
    let (kind, term) = match terms::next_step(&facts) {
        terms::Step::Look => (0, Term(0)),
        terms::Step::Mark(term) => (1, term),
        terms::Step::Keep => (2, facts.held),
        terms::Step::Give(term) => (3, term),
    };
    Ok(vec![kind, term.0 as jlong])
}

/// Makes a marker in a folder of markers, and deletes those of older terms.
fn mark_term(env: &mut Env<'_>, dir: String, files: JObject<'_>, term: jlong) -> Result<()> {
    let storage = storage(env, dir, &files)?;
    Ok(terms::mark(storage.as_ref(), Term(term as u64))?)
}

fn all(given: Vec<jlong>) -> HashSet<Term> {
    given.into_iter().map(|term| Term(term as u64)).collect()
}

natives! {
    raw fn open_index_cache() -> jlong;
    raw fn close_index_cache(cache: jlong);
    raw fn set_local_umask(umask: jint);
    env fn newest_terms(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", own: [jlong]
    ) -> [jlong];
    rust fn next_term(
        older: jlong, marker: jlong, runs: jboolean, newest: jlong, held: jlong, clock: jlong
    ) -> [jlong];
    env fn mark_term(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong
    );
    rust fn referenced_ends(ids: [JString]) -> ["io.holdfast.spark.merged.FileEnd"];
    rust fn next_step(
        end: jlong, is_lost: jboolean, writer: jint, stored: jlong, copied: jint
    ) -> jint;
    env fn look_at_file(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong, number: jlong
    ) -> jlong;
    env fn create_from_copies(
        dir: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong, number: jlong,
        bytes: [jbyte]
    ) -> [jbyte];
    rust fn learn_files(cache: jlong, dir: JString, told: [jbyte]);
    rust fn catalog(cache: jlong, dir: JString) -> [jbyte];
    env fn read_catalogs(
        cache: jlong, dir: JString, beside: JString,
        files: "io.holdfast.spark.merged.HadoopFolder"
    ) -> [JString];
    env fn write_catalog(
        beside: JString, files: "io.holdfast.spark.merged.HadoopFolder", term: jlong,
        number: jlong, content: [jbyte], replaced: [JString]
    ) -> JString;
    env fn reclaim(
        cache: jlong, dir: JString, files: "io.holdfast.spark.merged.HadoopFolder",
        leases: JString, lease_files: "io.holdfast.spark.merged.HadoopFolder",
        partitions: [JString], ids: [JString], oldest_batch: jlong, now_ms: jlong, live_terms: [jlong],
        own: [jlong], older: jlong, told: jboolean, lists: jboolean
    ) -> "io.holdfast.spark.merged.Reclaimed";
}

/// `record FileEnd(long term, long number, long end)`.
fn referenced_ends(ids: Vec<VersionId>) -> Result<LongRecords<3>> {
    let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
    for VersionId { state, pending } in ids {
        let pending = pending.iter().map(|pending| pending.segment);
        for segment in state.segment.into_iter().chain(pending) {
            let end = ends.entry(segment.file).or_default();
            *end = segment.end().max(*end);
        }
    }
    let rows = ends
        .iter()
        .map(|(file, end)| [file.term.0, u64::from(file.seq), *end]);
    Ok(LongRecords(
        jni_str!("io/holdfast/spark/merged/FileEnd"),
        rows.collect(),
    ))
}

/// Java's `FileFacts`. `stored` and `copied` are negative before a look.
fn next_step(
    end: jlong,
    is_lost: jboolean,
    writer: jint,
    stored: jlong,
    copied: jint,
) -> Result<jint> {
    let writer = match writer {
        0 => Writer::Unasked,
        1 => Writer::Done,
        2 => Writer::Failed,
        3 => Writer::Silent,
        _ => Writer::Gone,
    };
    let facts = Facts {
        end: end as u64,
        is_lost,
        writer,
        stored: u64::try_from(stored).ok(),
        copied: (copied >= 0).then_some(copied > 0),
    };
    Ok(match next(&facts) {
        Step::Ask => 0,
        Step::Look => 1,
        Step::Gather => 2,
        Step::Complete => 3,
        Step::Done => 4,
        Step::Fail(Failure::Lost) => 5,
        Step::Fail(Failure::WriterFailed) => 6,
        Step::Fail(Failure::WriterSilent) => 7,
        Step::Fail(Failure::Incomplete) => 8,
    })
}

/// Makes a file whose writer is gone survive a machine crash, if storage can do that for another
/// process. Returns its length; 0 without the file.
fn look_at_file(
    env: &mut Env<'_>,
    dir: String,
    files: JObject<'_>,
    term: jlong,
    number: jlong,
) -> Result<jlong> {
    let storage = readable(env, dir, &files)?;
    let name = file_id(Term(term as u64), number)?.file_name();
    let look = || {
        if storage.capabilities().sync_by_name {
            storage.sync(&name)?;
        }
        storage.len(&name)
    };
    match look() {
        Ok(bytes) => Ok(bytes as jlong),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
        Err(e) => Err(e.into()),
    }
}

/// Makes a file from copies, unless there is one. Returns facts about it for [`learn_files`].
fn create_from_copies(
    env: &mut Env<'_>,
    dir: String,
    files: JObject<'_>,
    term: jlong,
    number: jlong,
    bytes: Vec<u8>,
) -> Result<Vec<u8>> {
    let storage = storage(env, dir, &files)?;
    let file = file_id(Term(term as u64), number)?;
    match create(storage.as_ref(), file, bytes) {
        Ok(index) => Ok(encode_finished(vec![index])?),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

/// Learns of finished files of `dir`.
fn learn_files(cache: jlong, dir: String, told: Vec<u8>) -> Result<()> {
    Ok(INDEX_CACHES.get(cache)?.lock().learn_told(&dir, &told)?)
}

/// All known files of `dir`.
fn catalog(cache: jlong, dir: String) -> Result<Vec<u8>> {
    Ok(INDEX_CACHES.get(cache)?.lock().catalog(&dir)?)
}

/// Learns of all files of `dir` in the catalogs of the folder `beside`; returns their names.
fn read_catalogs(
    env: &mut Env<'_>,
    cache: jlong,
    dir: String,
    beside: String,
    files: JObject<'_>,
) -> Result<Vec<String>> {
    let folder = storage(env, beside, &files)?;
    let cache = INDEX_CACHES.get(cache)?;
    let found = reclaim::read_catalogs(folder.as_ref(), &dir, &mut cache.lock())?;
    Ok(found)
}

/// Writes a catalog, and then deletes those that it replaces. Returns its name.
fn write_catalog(
    env: &mut Env<'_>,
    beside: String,
    files: JObject<'_>,
    term: jlong,
    number: jlong,
    content: Vec<u8>,
    replaced: Vec<String>,
) -> Result<String> {
    let folder = storage(env, beside, &files)?;
    let name = reclaim::catalog_name(term as u64, number as u64);
    reclaim::write_catalog(folder.as_ref(), &name, &content, &replaced)?;
    Ok(name)
}

/// `record Reclaimed(String done, long files, long bytes, long physicalBytes, long pinnedBytes,
/// FileId[] wasteful)`.
const RECLAIMED: &JNIStr = jni_str!("io/holdfast/spark/merged/Reclaimed");

fn reclaim<'local>(
    env: &mut Env<'local>,
    cache: jlong,
    dir: String,
    files: JObject<'_>,
    leases: String,
    lease_files: JObject<'_>,
    partitions: Vec<String>,
    ids: Vec<VersionId>,
    oldest_batch: jlong,
    now_ms: jlong,
    live_terms: Vec<jlong>,
    own: Vec<jlong>,
    older: jlong,
    told: jboolean,
    lists: jboolean,
) -> Result<JObject<'local>> {
    let storage = storage(env, dir, &files)?;
    let mut oldest = Floors::default();
    for (partition, id) in partitions.iter().zip(&ids) {
        oldest.add_version(partition, id);
    }
    // The caller has read the oldest entry before.
    let now = Now {
        oldest: oldest_batch as u64,
        ms: now_ms as u64,
    };
    let leases = crate::folders::storage(env, leases, &lease_files)?;
    let leases = read_leases(now, leases.as_ref())?;
    let leases = leases.iter().map(Leased::of).collect::<Result<_, _>>()?;
    let needed = Needed { oldest, leases };
    let live = all(live_terms);
    let known = KnownTerms {
        older: Term(older as u64),
        own: all(own),
    };
    let may_append = |term: Term| live.contains(&term);
    let cache = INDEX_CACHES.get(cache)?;
    let (storage, indexes) = (storage.as_ref(), &mut cache.lock());
    let report = match told {
        true => {
            let terms = lists.then_some(known);
            reclaim::reclaim_told(storage, indexes, &needed, &may_append, terms)
        }
        false => reclaim::reclaim(storage, indexes, &needed, &may_append, known),
    }?;
    let space = &report.space;
    let done = env.new_string(report.summary())?;
    let wasteful: JObjectArray<'_> = file_records(&space.wasteful).into_java(env)?;
    Ok(env.new_object(
        RECLAIMED,
        jni_sig!("(Ljava/lang/String;JJJJ[Lio/holdfast/spark/merged/FileId;)V"),
        &[
            JValue::Object(&done),
            JValue::Long(report.kept.len() as jlong),
            JValue::Long(report.kept_bytes as jlong),
            JValue::Long(space.physical_bytes as jlong),
            JValue::Long(space.pinned_bytes() as jlong),
            JValue::Object(&wasteful),
        ],
    )?)
}
