//! Segments as the driver of a regional pipeline uses them. It reads them without a manager, writes
//! copies of checkpoints, and deletes the files of managers that are gone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use holdfast_core::checkpoint;
use holdfast_core::format::{NewSegment, OpenedFiles, SegmentKind};
use holdfast_core::liveness::RestoredCheckpoint;
use holdfast_core::manager;
use holdfast_core::reclaim::{self, newest_term};
use holdfast_core::state::{self, CommitId, VersionId};
use holdfast_core::storage::{NearbyStorage, Storage};
use holdfast_core::{CheckpointId, Error, FileId, Owner, SegmentRef, Term};
use jni::Env;
use jni::objects::{JByteArray, JLongArray, JObject, JString};
use jni::sys::{jint, jlong};
use parking_lot::Mutex;

use crate::convert::{JStrings, java_strings, longs};
use crate::folders::{NEARBY_BYTES, seen_while_written, storage};
use crate::guard::{Result, natives};
use crate::handles::Handles;
use crate::regional::REGIONAL;

/// Segments of one folder that are read one after the other.
struct StoredSegments {
    storage: Arc<dyn Storage>,
    opened: OpenedFiles,
    /// The same storage for segments of state stores, which are read in small parts.
    nearby: Arc<dyn Storage>,
}

/// Bound on open files. A checkpoint has one file for each executor, or for each task on object
/// stores.
const MAX_OPEN: usize = 32;

static STORED: Handles<StoredSegments> = Handles::new("folder of stored segments");

natives! {
    env fn open_stored(dir: JString, files: "io.holdfast.spark.merged.HadoopFolder") -> jlong;
    raw fn close_stored(stored: jlong);
    env fn read_segment(
        stored: jlong, reference: [jbyte], pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> [jbyte];
    env fn segment_bytes(
        stored: jlong, reference: [jbyte], pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> jlong;
    env fn inspect_segment(stored: jlong, reference: [jbyte]) -> [jbyte];
    env fn copy_segment(
        manager: jlong, stored: jlong, reference: [jbyte], from_pipeline: JString,
        pipeline: JString, operator: JString, region: JString, store: JString, created: jlong,
        kind: jint, entries: jlong
    ) -> [jbyte];
    env fn append_segment(
        manager: jlong, pipeline: JString, operator: JString, region: JString, store: JString,
        created: jlong, kind: jint, entries: jlong, payload: [jbyte]
    ) -> [jbyte];
    env fn copy_table(
        manager: jlong, stored: jlong, id: JString, from_pipeline: JString, pipeline: JString,
        operator: JString, region: JString, store: JString, created: jlong
    ) -> [JString];
    env fn read_table(
        stored: jlong, id: JString, pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> [jbyte];
    raw fn persist_segments(manager: jlong, checkpoint: jlong);
    env fn open_orphans(
        segments: JString, segment_files: "io.holdfast.spark.merged.HadoopFolder", metadata: JString,
        metadata_files: "io.holdfast.spark.merged.HadoopFolder", pipeline: JString
    ) -> jlong;
    env fn reclaim_orphans(
        orphans: jlong, retained: [jlong], live_terms: [jlong], newest: jlong
    ) -> [JString];
    raw fn close_orphans(orphans: jlong);
}

fn open_stored(env: &mut Env<'_>, dir: JString<'_>, files: JObject<'_>) -> Result<jlong> {
    let storage = storage(env, &dir, &files)?;
    // A file that readers see before it is finished grows, and `NearbyStorage` would not notice.
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
}

/// Closing twice does nothing.
fn close_stored(stored: jlong) -> Result<()> {
    STORED.remove(stored);
    Ok(())
}

fn read_segment<'local>(
    env: &mut Env<'local>,
    stored: jlong,
    reference: JByteArray<'_>,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
) -> Result<JByteArray<'local>> {
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let payload = payload(env, stored, reference, &owner)?;
    Ok(env.byte_array_from_slice(&payload)?)
}

fn segment_bytes(
    env: &mut Env<'_>,
    stored: jlong,
    reference: JByteArray<'_>,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
) -> Result<jlong> {
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let payload = payload(env, stored, reference, &owner)?;
    Ok(payload.len() as jlong)
}

fn inspect_segment<'local>(
    env: &mut Env<'local>,
    stored: jlong,
    reference: JByteArray<'_>,
) -> Result<JByteArray<'local>> {
    let stored = STORED.get(stored)?;
    let report = state::inspect_segment(stored.nearby.as_ref(), &segment(env, reference)?)?;
    Ok(env.byte_array_from_slice(&report.to_bytes())?)
}

fn copy_segment<'local>(
    env: &mut Env<'local>,
    manager: jlong,
    stored: jlong,
    reference: JByteArray<'_>,
    from_pipeline: JString<'_>,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
    created: jlong,
    kind: jint,
    entries: jlong,
) -> Result<JByteArray<'local>> {
    let before = owner(env, [&from_pipeline, &operator, &region, &store])?;
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let new = new_segment(&owner, created, kind, entries)?;
    let manager = REGIONAL.get(manager)?;
    let payload = payload(env, stored, reference, &before)?;
    let reference = manager.append(&new, &payload)?;
    Ok(env.byte_array_from_slice(&reference.to_bytes())?)
}

fn copy_table<'local>(
    env: &mut Env<'local>,
    manager: jlong,
    stored: jlong,
    id: JString<'_>,
    from_pipeline: JString<'_>,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
    created: jlong,
) -> Result<JStrings<'local>> {
    let before = owner(env, [&from_pipeline, &operator, &region, &store])?;
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let id = commit_id(env, &id)?;
    let checkpoint = CheckpointId(unsigned("checkpoint", created)?);
    let stored = STORED.get(stored)?;
    let from = (&before, &id);
    let copy =
        REGIONAL
            .get(manager)?
            .copy_table(stored.storage.as_ref(), from, &owner, checkpoint)?;
    let refs = copy
        .segments
        .iter()
        .map(|reference| hex(&reference.to_bytes()));
    let said: Vec<String> = [copy.id.to_string(), copy.keys.to_string()]
        .into_iter()
        .chain(refs)
        .collect();
    java_strings(env, &said)
}

fn read_table<'local>(
    env: &mut Env<'local>,
    stored: jlong,
    id: JString<'_>,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
) -> Result<JByteArray<'local>> {
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let id = commit_id(env, &id)?;
    let stored = STORED.get(stored)?;
    let entries = manager::read_table(stored.storage.as_ref(), &owner, &id)?;
    Ok(env.byte_array_from_slice(&entries)?)
}

fn commit_id(env: &Env<'_>, id: &JString<'_>) -> Result<CommitId> {
    Ok(id.try_to_string(env)?.parse::<VersionId>()?.state)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A segment to be written.
fn new_segment(
    owner: &Owner,
    created: jlong,
    kind: jint,
    entries: jlong,
) -> Result<NewSegment<'_>> {
    let created = CheckpointId(unsigned("checkpoint", created)?);
    Ok(NewSegment {
        entries: unsigned("entries", entries)?,
        ..NewSegment::of(owner, created, segment_kind(kind)?)
    })
}

/// The payload of a segment, after all of it was verified.
fn payload(
    env: &Env<'_>,
    stored: jlong,
    reference: JByteArray<'_>,
    owner: &Owner,
) -> Result<Vec<u8>> {
    let stored = STORED.get(stored)?;
    let reference = segment(env, reference)?;
    let segment = stored
        .opened
        .read(stored.storage.as_ref(), &reference, owner, 0)?;
    Ok(segment.payload)
}

/// A reference as checkpoints hold it.
fn segment(env: &Env<'_>, reference: JByteArray<'_>) -> Result<SegmentRef> {
    Ok(SegmentRef::from_bytes(&env.convert_byte_array(reference)?)?)
}

fn append_segment<'local>(
    env: &mut Env<'local>,
    manager: jlong,
    pipeline: JString<'_>,
    operator: JString<'_>,
    region: JString<'_>,
    store: JString<'_>,
    created: jlong,
    kind: jint,
    entries: jlong,
    payload: JByteArray<'_>,
) -> Result<JByteArray<'local>> {
    let owner = owner(env, [&pipeline, &operator, &region, &store])?;
    let new = new_segment(&owner, created, kind, entries)?;
    let payload = env.convert_byte_array(payload)?;
    let reference = REGIONAL.get(manager)?.append(&new, &payload)?;
    Ok(env.byte_array_from_slice(&reference.to_bytes())?)
}

fn persist_segments(manager: jlong, checkpoint: jlong) -> Result<()> {
    let checkpoint = CheckpointId(unsigned("checkpoint", checkpoint)?);
    Ok(REGIONAL.get(manager)?.persist(checkpoint)?)
}

fn owner(env: &Env<'_>, parts: [&JString<'_>; 4]) -> Result<Owner> {
    let [pipeline, operator, region, store] = parts;
    Ok(Owner {
        pipeline: pipeline.try_to_string(env)?,
        operator: operator.try_to_string(env)?,
        region: region.try_to_string(env)?,
        store: store.try_to_string(env)?,
    })
}

fn segment_kind(tag: jint) -> Result<SegmentKind> {
    let known = u8::try_from(tag).ok().and_then(SegmentKind::from_tag);
    known.ok_or_else(|| Error::invalid_input(format!("unknown segment kind {tag}")).into())
}

fn unsigned(what: &str, number: jlong) -> Result<u64> {
    u64::try_from(number).map_err(|_| {
        Error::invalid_input(format!("{what}: expected 0 or more, found {number}")).into()
    })
}

/// The clean-up of a pipeline's folder.
struct Orphans {
    segments: Arc<dyn Storage>,
    metadata: Arc<dyn Storage>,
    pipeline: String,
    /// The newest term of the files that were there when this was opened.
    found: Term,
    /// Segments of the retained checkpoints. Metadata never changes, so each is read once.
    known: Mutex<BTreeMap<CheckpointId, RestoredCheckpoint>>,
    /// The managers at the last pass, if that left no file but theirs.
    clean: Mutex<Option<Managers>>,
}

/// The managers of an application, as a pass sees them.
#[derive(PartialEq, Eq)]
struct Managers {
    live: HashSet<Term>,
    newest: Term,
}

impl Orphans {
    /// Deletes files that no retained checkpoint needs. After a pass that left only files of live
    /// managers, the folder is not listed again until a manager comes or goes: nobody else writes
    /// there. Returns a summary, and the names of wasteful files.
    fn reclaim(&self, retained: &[CheckpointId], managers: Managers) -> Result<Vec<String>> {
        let mut clean = self.clean.lock();
        if clean.as_ref() == Some(&managers) {
            return Ok(vec![String::new()]);
        }
        *clean = None;
        let report = reclaim::reclaim_orphans(
            self.segments.as_ref(),
            || self.restored(retained),
            &|term| managers.live.contains(&term),
            managers.newest,
        )?;
        if report.kept.is_empty() && report.failed.is_empty() {
            *clean = Some(managers);
        }
        let wasteful = report.space.wasteful.iter().map(FileId::file_name);
        Ok([report.summary()].into_iter().chain(wasteful).collect())
    }

    /// Segments that `retained` need. Forgets all other checkpoints.
    fn restored(&self, retained: &[CheckpointId]) -> Result<Vec<RestoredCheckpoint>, Error> {
        let mut known = self.known.lock();
        known.retain(|id, _| retained.contains(id));
        for id in retained {
            if !known.contains_key(id) {
                let metadata = checkpoint::read(self.metadata.as_ref(), *id)?;
                known.insert(*id, metadata.restored(&self.pipeline)?);
            }
        }
        Ok(known.values().cloned().collect())
    }
}

static ORPHANS: Handles<Orphans> = Handles::new("clean-up of orphan files");

fn open_orphans(
    env: &mut Env<'_>,
    segments: JString<'_>,
    segment_files: JObject<'_>,
    metadata: JString<'_>,
    metadata_files: JObject<'_>,
    pipeline: JString<'_>,
) -> Result<jlong> {
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
}

fn reclaim_orphans<'local>(
    env: &mut Env<'local>,
    orphans: jlong,
    retained: JLongArray<'_>,
    live_terms: JLongArray<'_>,
    newest: jlong,
) -> Result<JStrings<'local>> {
    let retained = longs(env, &retained)?
        .into_iter()
        .map(|id| unsigned("checkpoint", id).map(CheckpointId))
        .collect::<Result<Vec<_>>>()?;
    let live = longs(env, &live_terms)?.into_iter();
    let orphans = ORPHANS.get(orphans)?;
    let managers = Managers {
        live: live.map(|term| Term(term as u64)).collect(),
        newest: orphans.found.max(Term(unsigned("newest term", newest)?)),
    };
    java_strings(env, &orphans.reclaim(&retained, managers)?)
}

/// Closing twice does nothing.
fn close_orphans(orphans: jlong) -> Result<()> {
    ORPHANS.remove(orphans);
    Ok(())
}
