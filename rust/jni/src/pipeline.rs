//! What the driver of a regional pipeline does with segments: reads them without a manager, writes
//! copies of checkpoints, and deletes the files of managers that are gone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use holdfast_core::checkpoint;
use holdfast_core::format::{NewSegment, OpenedFiles, SegmentKind};
use holdfast_core::liveness::RestoredCheckpoint;
use holdfast_core::reclaim::{newest_term, reclaim_orphans};
use holdfast_core::state::inspect_segment;
use holdfast_core::storage::{NearbyStorage, Storage};
use holdfast_core::{CheckpointId, Error, Owner, SegmentRef, Term};
use jni::objects::{JByteArray, JClass, JLongArray, JObject, JString};
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned};
use parking_lot::Mutex;

use crate::convert::longs;
use crate::folders::{NEARBY_BYTES, seen_while_written, storage};
use crate::guard::{Failure, primitive, with_env};
use crate::handles::Handles;
use crate::regional::REGIONAL;

/// Segments of one folder that are read one after the other.
struct StoredSegments {
    storage: Arc<dyn Storage>,
    opened: OpenedFiles,
    /// The same storage for segments of state stores, of which little is read at once.
    nearby: Arc<dyn Storage>,
}

/// Files that stay open: those of a checkpoint are one for each executor, or each task on object stores.
const MAX_OPEN: usize = 32;

static STORED: Handles<StoredSegments> = Handles::new("folder of stored segments");

/// `Native.openStored(String dir, HadoopFiles files): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openStored<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
) -> jlong {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        // Files that are seen before they are finished grow, and what is shared of them does not.
        let grows = files.is_null() || seen_while_written(env, &files)?;
        let nearby = if grows {
            Arc::clone(&storage)
        } else {
            Arc::new(NearbyStorage::new(Arc::clone(&storage), NEARBY_BYTES))
        };
        Ok(STORED.insert(StoredSegments {
            storage,
            opened: OpenedFiles::new(MAX_OPEN),
            nearby,
        }))
    })
}

/// `Native.closeStored(long stored)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeStored<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    stored: jlong,
) {
    primitive(env, || {
        STORED.remove(stored);
        Ok(())
    });
}

/// `Native.readSegment(long stored, byte[] reference, String pipeline, String operator, String region,
/// String store): byte[]`: the payload, after all of it was verified.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_readSegment<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    stored: jlong,
    reference: JByteArray<'local>,
    pipeline: JString<'local>,
    operator: JString<'local>,
    region: JString<'local>,
    store: JString<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let owner = owner(env, [&pipeline, &operator, &region, &store])?;
        let payload = payload(env, stored, reference, &owner)?;
        Ok(env.byte_array_from_slice(&payload)?)
    })
}

/// `Native.segmentBytes(long stored, byte[] reference, String pipeline, String operator, String region,
/// String store): long`: size of the payload, after all of it was verified.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_segmentBytes<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    stored: jlong,
    reference: JByteArray<'local>,
    pipeline: JString<'local>,
    operator: JString<'local>,
    region: JString<'local>,
    store: JString<'local>,
) -> jlong {
    with_env(env, |env| {
        let owner = owner(env, [&pipeline, &operator, &region, &store])?;
        let payload = payload(env, stored, reference, &owner)?;
        Ok(payload.len() as jlong)
    })
}

/// `Native.inspectSegment(long stored, byte[] reference): byte[]`: what a segment of a state store holds,
/// after all of it was verified.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_inspectSegment<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    stored: jlong,
    reference: JByteArray<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let stored = STORED.get(stored)?;
        let report = inspect_segment(stored.nearby.as_ref(), &segment(env, reference)?)?;
        Ok(env.byte_array_from_slice(&report.to_bytes())?)
    })
}

/// `Native.copySegment(long manager, long stored, byte[] reference, String fromPipeline, String pipeline,
/// String operator, String region, String store, long created, int kind, long entries): byte[]`: writes
/// what was read and verified; returns the new reference.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_copySegment<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    stored: jlong,
    reference: JByteArray<'local>,
    from_pipeline: JString<'local>,
    pipeline: JString<'local>,
    operator: JString<'local>,
    region: JString<'local>,
    store: JString<'local>,
    created: jlong,
    kind: jint,
    entries: jlong,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let before = owner(env, [&from_pipeline, &operator, &region, &store])?;
        let owner = owner(env, [&pipeline, &operator, &region, &store])?;
        let new = new_segment(&owner, created, kind, entries)?;
        let manager = REGIONAL.get(manager)?;
        let payload = payload(env, stored, reference, &before)?;
        let reference = manager.append(&new, &payload)?;
        Ok(env.byte_array_from_slice(&reference.to_bytes())?)
    })
}

/// What Java says of a segment that is written.
fn new_segment(
    owner: &Owner,
    created: jlong,
    kind: jint,
    entries: jlong,
) -> Result<NewSegment<'_>, Failure> {
    Ok(NewSegment {
        owner,
        created: CheckpointId(unsigned("checkpoint", created)?),
        kind: segment_kind(kind)?,
        lineage: &[],
        replaced: None,
        entries: unsigned("entries", entries)?,
        tables: &[],
        runs: 0,
    })
}

/// The payload of a segment, after all of it was verified.
fn payload(
    env: &Env<'_>,
    stored: jlong,
    reference: JByteArray<'_>,
    owner: &Owner,
) -> Result<Vec<u8>, Failure> {
    let stored = STORED.get(stored)?;
    let reference = segment(env, reference)?;
    let segment = stored
        .opened
        .read(stored.storage.as_ref(), &reference, owner, 0)?;
    Ok(segment.payload)
}

/// A reference as checkpoints hold it.
fn segment(env: &Env<'_>, reference: JByteArray<'_>) -> Result<SegmentRef, Failure> {
    Ok(SegmentRef::from_bytes(&env.convert_byte_array(reference)?)?)
}

/// `Native.appendSegment(long manager, String pipeline, String operator, String region, String
/// store, long created, int kind, long entries, byte[] payload): byte[]`: returns the reference.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_appendSegment<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    pipeline: JString<'local>,
    operator: JString<'local>,
    region: JString<'local>,
    store: JString<'local>,
    created: jlong,
    kind: jint,
    entries: jlong,
    payload: JByteArray<'local>,
) -> JByteArray<'local> {
    with_env(env, |env| {
        let owner = owner(env, [&pipeline, &operator, &region, &store])?;
        let new = new_segment(&owner, created, kind, entries)?;
        let payload = env.convert_byte_array(payload)?;
        let reference = REGIONAL.get(manager)?.append(&new, &payload)?;
        Ok(env.byte_array_from_slice(&reference.to_bytes())?)
    })
}

/// `Native.persistSegments(long manager, long checkpoint)`: makes everything that was written for
/// the checkpoint survive a machine crash.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_persistSegments<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    manager: jlong,
    checkpoint: jlong,
) {
    primitive(env, || {
        let checkpoint = CheckpointId(unsigned("checkpoint", checkpoint)?);
        Ok(REGIONAL.get(manager)?.persist(checkpoint)?)
    });
}

fn owner(env: &Env<'_>, parts: [&JString<'_>; 4]) -> Result<Owner, Failure> {
    let [pipeline, operator, region, store] = parts;
    Ok(Owner {
        pipeline: pipeline.try_to_string(env)?,
        operator: operator.try_to_string(env)?,
        region: region.try_to_string(env)?,
        store: store.try_to_string(env)?,
    })
}

fn segment_kind(tag: jint) -> Result<SegmentKind, Failure> {
    let known = u8::try_from(tag).ok().and_then(SegmentKind::from_tag);
    known.ok_or_else(|| Failure::Core(Error::invalid_input(format!("unknown segment kind {tag}"))))
}

fn unsigned(what: &str, number: jlong) -> Result<u64, Failure> {
    u64::try_from(number).map_err(|_| {
        Failure::Core(Error::invalid_input(format!(
            "{what}: expected 0 or more, found {number}"
        )))
    })
}

/// The clean-up of a pipeline's folder.
struct Orphans {
    segments: Arc<dyn Storage>,
    metadata: Arc<dyn Storage>,
    pipeline: String,
    /// The newest term of the files that were there at the beginning.
    found: Term,
    /// What the retained checkpoints need: metadata never changes, so each is read once.
    known: Mutex<BTreeMap<CheckpointId, RestoredCheckpoint>>,
    /// Managers of which a pass left no file but theirs.
    clean: Mutex<Option<Managers>>,
}

/// The managers that an application gave terms to, as far as a pass needs to know them.
#[derive(PartialEq, Eq)]
struct Managers {
    live: HashSet<Term>,
    newest: Term,
}

impl Orphans {
    /// Deletes what no retained checkpoint needs. The folder is not listed again while none of the
    /// managers went or came since a pass that left only their files: nothing else writes there.
    fn reclaim(&self, retained: &[CheckpointId], managers: Managers) -> Result<String, Error> {
        let mut clean = self.clean.lock();
        if clean.as_ref() == Some(&managers) {
            return Ok(String::new());
        }
        *clean = None;
        let report = reclaim_orphans(
            self.segments.as_ref(),
            || self.restored(retained),
            &|term| managers.live.contains(&term),
            managers.newest,
        )?;
        if report.kept.is_empty() && report.failed.is_empty() {
            *clean = Some(managers);
        }
        Ok(report.summary())
    }

    /// What all of `retained` need; what is known of others is forgotten.
    fn restored(&self, retained: &[CheckpointId]) -> Result<Vec<RestoredCheckpoint>, Error> {
        let mut known = self.known.lock();
        known.retain(|id, _| retained.contains(id));
        for id in retained {
            if !known.contains_key(id) {
                let metadata = checkpoint::read(self.metadata.as_ref(), *id)?;
                let references = metadata.references(&self.pipeline)?.into_iter();
                let segments = references
                    .map(|found| (found.owner, found.origin, found.reference))
                    .collect();
                known.insert(*id, RestoredCheckpoint { id: *id, segments });
            }
        }
        Ok(known.values().cloned().collect())
    }
}

static ORPHANS: Handles<Orphans> = Handles::new("clean-up of orphan files");

/// `Native.openOrphans(String segments, HadoopFiles segmentFiles, String metadata, HadoopFiles
/// metadataFiles, String pipeline): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openOrphans<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    segments: JString<'local>,
    segment_files: JObject<'local>,
    metadata: JString<'local>,
    metadata_files: JObject<'local>,
    pipeline: JString<'local>,
) -> jlong {
    with_env(env, |env| {
        let segments = storage(env, &segments, &segment_files)?;
        let found = newest_term(segments.as_ref())?.unwrap_or(Term(0));
        Ok(ORPHANS.insert(Orphans {
            segments,
            metadata: storage(env, &metadata, &metadata_files)?,
            pipeline: pipeline.try_to_string(env)?,
            found,
            known: Mutex::default(),
            clean: Mutex::default(),
        }))
    })
}

/// `Native.reclaimOrphans(long orphans, long[] retained, long[] liveTerms, long newestTerm):
/// String`: deletes what no retained checkpoint needs; returns what was done, empty if nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_reclaimOrphans<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    orphans: jlong,
    retained: JLongArray<'local>,
    live_terms: JLongArray<'local>,
    newest: jlong,
) -> JString<'local> {
    with_env(env, |env| {
        let retained = longs(env, &retained)?
            .into_iter()
            .map(|id| unsigned("checkpoint", id).map(CheckpointId))
            .collect::<Result<Vec<_>, _>>()?;
        let live = longs(env, &live_terms)?.into_iter();
        let orphans = ORPHANS.get(orphans)?;
        let managers = Managers {
            live: live.map(|term| Term(term as u64)).collect(),
            newest: orphans.found.max(Term(unsigned("newest term", newest)?)),
        };
        Ok(env.new_string(orphans.reclaim(&retained, managers)?)?)
    })
}

/// `Native.closeOrphans(long orphans)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeOrphans<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    orphans: jlong,
) {
    primitive(env, || {
        ORPHANS.remove(orphans);
        Ok(())
    });
}
