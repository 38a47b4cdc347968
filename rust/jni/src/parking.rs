//! Pending rows: Java hands them over as inputs of parked versions, and reads them again.

use holdfast_core::Error;
use holdfast_core::state::{CommitId, Parking, PendingInput, StoreId, VersionId};
use jni::sys::{jint, jlong};
use parking_lot::Mutex;

use crate::guard::{Failure, Result, natives};
use crate::handles::Handles;
use crate::store::{STORES, version_of};

static PARKINGS: Handles<Mutex<Parking>> = Handles::new("input that is parked");

static READINGS: Handles<Mutex<PendingInput>> = Handles::new("pending input");

natives! {
    rust fn park(store: jlong, version: jlong, id: JString) -> jlong;
    raw fn keep(store: jlong, version: jlong, commit: jlong) -> jlong;
    rust fn waiting_for(id: JString, inputs: [JString]) -> JString;
    rust fn append_input(parking: jlong, bytes: [jbyte], length: jint);
    rust fn finish_parking(parking: jlong, rows: jlong) -> JString;
    raw fn close_parking(parking: jlong);
    rust fn id_at(id: JString, version: jlong) -> JString;
    rust fn pending_versions(id: JString) -> [jlong];
    rust fn pending_segment(id: JString, version: jlong) -> [jbyte];
    rust fn input_alone(id: JString, version: jlong) -> JString;
    rust fn pending(store: jlong, id: JString) -> [jlong];
    rust fn open_pending(store: jlong, id: JString, version: jlong) -> jlong;
    rust fn read_pending(reading: jlong, max_bytes: jint) -> [jbyte];
    raw fn close_pending(reading: jlong);
    raw fn mark_replayed(store: jlong);
}

fn park(store: jlong, version: jlong, id: Option<VersionId>) -> Result<jlong> {
    let parking = STORES.get(store)?.park(version_of(version)?, id.as_ref())?;
    Ok(PARKINGS.insert(Mutex::new(parking)))
}

fn keep(store: jlong, version: jlong, commit: jlong) -> Result<jlong> {
    let parking = STORES
        .get(store)?
        .keep(version_of(version)?, version_of(commit)?)?;
    Ok(PARKINGS.insert(Mutex::new(parking)))
}

fn append_input(parking: jlong, bytes: Vec<u8>, length: jint) -> Result<()> {
    let input = usize::try_from(length)
        .ok()
        .and_then(|len| bytes.get(..len));
    let Some(input) = input else {
        return Err(Failure::from(Error::invalid_input(format!(
            "expected at most {} bytes, found a length of {length}",
            bytes.len()
        ))));
    };
    Ok(PARKINGS.get(parking)?.lock().append(input)?)
}

/// The id of a version that waits for these inputs, which have their own ids.
fn waiting_for(id: VersionId, inputs: Vec<VersionId>) -> Result<String> {
    Ok(id.waiting_for(&inputs).to_string())
}

/// Ends the input. Also closes the handle, even after a failure.
fn finish_parking(parking: jlong, rows: jlong) -> Result<String> {
    let parking = PARKINGS
        .remove(parking)
        .and_then(std::sync::Arc::into_inner);
    let parking = parking.ok_or(Failure::Closed("input that is parked"))?;
    Ok(parking.into_inner().finish(rows as u64)?.to_string())
}

fn close_parking(parking: jlong) -> Result<()> {
    PARKINGS.remove(parking);
    Ok(())
}

/// The id of a later version with the same content, as a commit without changes makes it.
fn id_at(id: VersionId, version: jlong) -> Result<String> {
    let version = version_of(version)?;
    let state = CommitId {
        version,
        ..id.state
    };
    Ok(VersionId { state, ..id }.to_string())
}

/// Versions of the pending inputs, oldest first.
fn pending_versions(id: String) -> Result<Vec<jlong>> {
    let pending = match id.parse()? {
        StoreId::Version(id) => id.pending,
        StoreId::View(_) => Vec::new(),
    };
    let versions = pending.iter().map(|pending| pending.version as jlong);
    Ok(versions.collect())
}

/// The reference of the last piece of an input, as bytes.
fn pending_segment(id: VersionId, version: jlong) -> Result<Vec<u8>> {
    let input = alone(&id, version)?;
    let segments = input
        .pending
        .iter()
        .flat_map(|pending| pending.segment.to_bytes());
    Ok(segments.collect())
}

/// The id of only an input, for `waiting_for`.
fn input_alone(id: VersionId, version: jlong) -> Result<String> {
    Ok(alone(&id, version)?.to_string())
}

fn alone(id: &VersionId, version: jlong) -> Result<VersionId> {
    let version = version_of(version)?;
    id.input_alone(version).ok_or_else(|| {
        Failure::from(Error::invalid_input(format!(
            "the id waits for no input of version {version}"
        )))
    })
}

/// Version, rows and bytes of each pending input, oldest first.
fn pending(store: jlong, id: VersionId) -> Result<Vec<jlong>> {
    let store = STORES.get(store)?;
    let mut found = Vec::new();
    for pending in &id.pending {
        let input = store.pending_input(&id, pending.version)?;
        let (rows, bytes) = (input.rows(), input.bytes()?);
        found.extend([pending.version, rows, bytes].map(|number| number as jlong));
    }
    Ok(found)
}

fn open_pending(store: jlong, id: VersionId, version: jlong) -> Result<jlong> {
    let input = STORES
        .get(store)?
        .pending_input(&id, version_of(version)?)?;
    Ok(READINGS.insert(Mutex::new(input)))
}

/// The next bytes, at most `max_bytes`, and none at the end.
fn read_pending(reading: jlong, max_bytes: jint) -> Result<Vec<u8>> {
    let reading = READINGS.get(reading)?;
    let mut input = reading.lock();
    Ok(input.read(max_bytes.max(1) as usize)?.to_vec())
}

fn close_pending(reading: jlong) -> Result<()> {
    READINGS.remove(reading);
    Ok(())
}

/// See [`StateStore::mark_replayed`](holdfast_core::state::StateStore::mark_replayed).
fn mark_replayed(store: jlong) -> Result<()> {
    STORES.with(store, |store| Ok(store.lock().mark_replayed()?))
}
