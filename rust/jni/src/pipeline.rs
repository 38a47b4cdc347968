//! Segments as the driver of a regional pipeline uses them. It reads them without a manager, writes
//! copies of checkpoints, and deletes the files of managers that are gone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use holdfast_core::checkpoint;
use holdfast_core::format::{NewSegment, OpenedFiles, SegmentKind};
use holdfast_core::liveness::RestoredCheckpoint;
use holdfast_core::manager;
use holdfast_core::reclaim::{self, newest_term};
use holdfast_core::state::{self, VersionId};
use holdfast_core::storage::{NearbyStorage, Storage};
use holdfast_core::{CheckpointId, Error, FileId, Owner, SegmentRef, Term};
use jni::Env;
use jni::objects::JObject;
use jni::sys::{jint, jlong};
use parking_lot::Mutex;

use crate::folders::{NEARBY_BYTES, readable, seen_while_written, storage};
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

/// Bound on open files. A checkpoint has a file per executor, or per task on object stores.
const MAX_OPEN: usize = 32;

static STORED: Handles<StoredSegments> = Handles::new("folder of stored segments");

natives! {
    env fn open_stored(dir: JString, files: "io.holdfast.spark.merged.HadoopFolder") -> jlong;
    raw fn close_stored(stored: jlong);
    rust fn read_segment(
        stored: jlong, reference: [jbyte], pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> [jbyte];
    rust fn segment_bytes(
        stored: jlong, reference: [jbyte], pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> jlong;
    rust fn inspect_segment(stored: jlong, reference: [jbyte]) -> [jbyte];
    rust fn copy_segment(
        manager: jlong, stored: jlong, reference: [jbyte], from_pipeline: JString,
        pipeline: JString, operator: JString, region: JString, store: JString, created: jlong,
        kind: jint, entries: jlong
    ) -> [jbyte];
    rust fn append_segment(
        manager: jlong, pipeline: JString, operator: JString, region: JString, store: JString,
        created: jlong, kind: jint, entries: jlong, payload: [jbyte]
    ) -> [jbyte];
    rust fn copy_table(
        manager: jlong, stored: jlong, id: JString, from_pipeline: JString, pipeline: JString,
        operator: JString, region: JString, store: JString, created: jlong
    ) -> [JString];
    rust fn read_table(
        stored: jlong, id: JString, pipeline: JString, operator: JString, region: JString,
        store: JString
    ) -> [jbyte];
    raw fn persist_segments(manager: jlong, checkpoint: jlong);
    env fn open_orphans(
        segments: JString, segment_files: "io.holdfast.spark.merged.HadoopFolder", metadata: JString,
        metadata_files: "io.holdfast.spark.merged.HadoopFolder", pipeline: JString
    ) -> jlong;
    rust fn reclaim_orphans(
        orphans: jlong, retained: [jlong], live_terms: [jlong], newest: jlong
    ) -> [JString];
    raw fn close_orphans(orphans: jlong);
}

fn open_stored(env: &mut Env<'_>, dir: String, files: JObject<'_>) -> Result<jlong> {
    let storage = readable(env, dir, &files)?;
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

fn close_stored(stored: jlong) -> Result<()> {
    STORED.remove(stored);
    Ok(())
}

fn read_segment(
    stored: jlong,
    reference: Vec<u8>,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
) -> Result<Vec<u8>> {
    payload(
        stored,
        &reference,
        &owner([pipeline, operator, region, store]),
    )
}

fn segment_bytes(
    stored: jlong,
    reference: Vec<u8>,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
) -> Result<jlong> {
    let payload = read_segment(stored, reference, pipeline, operator, region, store)?;
    Ok(payload.len() as jlong)
}

fn inspect_segment(stored: jlong, reference: Vec<u8>) -> Result<Vec<u8>> {
    let stored = STORED.get(stored)?;
    let reference = SegmentRef::from_bytes(&reference)?;
    Ok(state::inspect_segment(stored.nearby.as_ref(), &reference)?.to_bytes())
}

fn copy_segment(
    manager: jlong,
    stored: jlong,
    reference: Vec<u8>,
    from_pipeline: String,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
    created: jlong,
    kind: jint,
    entries: jlong,
) -> Result<Vec<u8>> {
    let owner = owner([from_pipeline, operator, region, store]);
    let payload = payload(stored, &reference, &owner)?;
    append(
        manager,
        &Owner { pipeline, ..owner },
        created,
        kind,
        entries,
        &payload,
    )
}

fn append_segment(
    manager: jlong,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
    created: jlong,
    kind: jint,
    entries: jlong,
    payload: Vec<u8>,
) -> Result<Vec<u8>> {
    let owner = owner([pipeline, operator, region, store]);
    append(manager, &owner, created, kind, entries, &payload)
}

fn copy_table(
    manager: jlong,
    stored: jlong,
    id: VersionId,
    from_pipeline: String,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
    created: jlong,
) -> Result<Vec<String>> {
    let before = owner([from_pipeline, operator, region, store]);
    let after = Owner {
        pipeline,
        ..before.clone()
    };
    let checkpoint = CheckpointId(unsigned("checkpoint", created)?);
    let stored = STORED.get(stored)?;
    let (manager, from) = (REGIONAL.get(manager)?, (&before, &id.state));
    let copy = manager.copy_table(stored.storage.as_ref(), from, &after, checkpoint)?;
    let mut said = vec![copy.id.to_string(), copy.keys.to_string()];
    said.extend(copy.segments.iter().map(|one| hex(&one.to_bytes())));
    Ok(said)
}

fn read_table(
    stored: jlong,
    id: VersionId,
    pipeline: String,
    operator: String,
    region: String,
    store: String,
) -> Result<Vec<u8>> {
    let owner = owner([pipeline, operator, region, store]);
    let stored = STORED.get(stored)?;
    Ok(manager::read_table(
        stored.storage.as_ref(),
        &owner,
        &id.state,
    )?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The payload of a segment, after all of it was verified.
fn payload(stored: jlong, reference: &[u8], owner: &Owner) -> Result<Vec<u8>> {
    let stored = STORED.get(stored)?;
    let reference = SegmentRef::from_bytes(reference)?;
    let segment = stored
        .opened
        .read(stored.storage.as_ref(), &reference, owner, 0)?;
    Ok(segment.payload)
}

/// Appends a segment; returns the bytes of its reference.
fn append(
    manager: jlong,
    owner: &Owner,
    created: jlong,
    kind: jint,
    entries: jlong,
    payload: &[u8],
) -> Result<Vec<u8>> {
    let created = CheckpointId(unsigned("checkpoint", created)?);
    let new = NewSegment {
        entries: unsigned("entries", entries)?,
        ..NewSegment::of(owner, created, segment_kind(kind)?)
    };
    let reference = REGIONAL.get(manager)?.append(&new, payload)?;
    Ok(reference.to_bytes().to_vec())
}

fn persist_segments(manager: jlong, checkpoint: jlong) -> Result<()> {
    let checkpoint = CheckpointId(unsigned("checkpoint", checkpoint)?);
    Ok(REGIONAL.get(manager)?.persist(checkpoint)?)
}

fn owner([pipeline, operator, region, store]: [String; 4]) -> Owner {
    Owner {
        pipeline,
        operator,
        region,
        store,
    }
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
    /// managers, the folder is not listed again until a manager comes or goes: nothing else writes
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
    segments: String,
    segment_files: JObject<'_>,
    metadata: String,
    metadata_files: JObject<'_>,
    pipeline: String,
) -> Result<jlong> {
    let segments = storage(env, segments, &segment_files)?;
    let found = newest_term(segments.as_ref())?.unwrap_or(Term(0));
    Ok(ORPHANS.insert(Orphans {
        segments,
        metadata: storage(env, metadata, &metadata_files)?,
        pipeline,
        found,
        known: Mutex::default(),
        clean: Mutex::default(),
    }))
}

fn reclaim_orphans(
    orphans: jlong,
    retained: Vec<jlong>,
    live_terms: Vec<jlong>,
    newest: jlong,
) -> Result<Vec<String>> {
    let retained = retained
        .into_iter()
        .map(|id| unsigned("checkpoint", id).map(CheckpointId))
        .collect::<Result<Vec<_>>>()?;
    let live = live_terms.into_iter();
    let orphans = ORPHANS.get(orphans)?;
    let managers = Managers {
        live: live.map(|term| Term(term as u64)).collect(),
        newest: orphans.found.max(Term(unsigned("newest term", newest)?)),
    };
    orphans.reclaim(&retained, managers)
}

fn close_orphans(orphans: jlong) -> Result<()> {
    ORPHANS.remove(orphans);
    Ok(())
}
