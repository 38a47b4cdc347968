//! Parked versions: input that Java hands over, and reads again.

use holdfast_core::Error;
use holdfast_core::state::{Parking, PendingInput, StoreId, VersionId};
use jni::Env;
use jni::objects::{JByteArray, JLongArray, JString};
use jni::sys::{jint, jlong};
use parking_lot::Mutex;

use crate::convert::{JStrings, java_longs, optional, strings};
use crate::guard::{Failure, Result, natives};
use crate::handles::Handles;
use crate::store::{STORES, version_of};

static PARKINGS: Handles<Mutex<Parking>> = Handles::new("input that is parked");

static READINGS: Handles<Mutex<PendingInput>> = Handles::new("pending input");

natives! {
    env fn park(store: jlong, version: jlong, id: JString) -> jlong;
    raw fn keep(store: jlong, version: jlong, commit: jlong) -> jlong;
    env fn waiting_for(id: JString, inputs: [JString]) -> JString;
    env fn append_input(parking: jlong, bytes: [jbyte], length: jint);
    env fn finish_parking(parking: jlong, rows: jlong) -> JString;
    raw fn close_parking(parking: jlong);
    env fn pending_versions(id: JString) -> [jlong];
    env fn pending_segment(id: JString, version: jlong) -> [jbyte];
    env fn input_alone(id: JString, version: jlong) -> JString;
    env fn pending(store: jlong, id: JString) -> [jlong];
    env fn open_pending(store: jlong, id: JString, version: jlong) -> jlong;
    env fn read_pending(reading: jlong, max_bytes: jint) -> [jbyte];
    raw fn close_pending(reading: jlong);
    raw fn mark_replayed(store: jlong);
}

fn park(env: &mut Env<'_>, store: jlong, version: jlong, id: JString<'_>) -> Result<jlong> {
    let id = optional(env, &id)?;
    let id = id.map(|text| text.parse::<VersionId>()).transpose()?;
    let parking = STORES.get(store)?.park(version_of(version)?, id.as_ref())?;
    Ok(PARKINGS.insert(Mutex::new(parking)))
}

fn keep(store: jlong, version: jlong, commit: jlong) -> Result<jlong> {
    let parking = STORES
        .get(store)?
        .keep(version_of(version)?, version_of(commit)?)?;
    Ok(PARKINGS.insert(Mutex::new(parking)))
}

fn append_input(
    env: &mut Env<'_>,
    parking: jlong,
    bytes: JByteArray<'_>,
    length: jint,
) -> Result<()> {
    let bytes = env.convert_byte_array(bytes)?;
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

/// The id of a version that waits for these inputs, which have ids of their own.
fn waiting_for<'local>(
    env: &mut Env<'local>,
    id: JString<'_>,
    inputs: JStrings<'_>,
) -> Result<JString<'local>> {
    let id = id.try_to_string(env)?.parse::<VersionId>()?;
    let inputs = strings(env, &inputs)?;
    let inputs = inputs.iter().map(|text| text.parse::<VersionId>());
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    Ok(env.new_string(id.waiting_for(&inputs).to_string())?)
}

/// Ends the input. The handle is closed then, also after a failure.
fn finish_parking<'local>(
    env: &mut Env<'local>,
    parking: jlong,
    rows: jlong,
) -> Result<JString<'local>> {
    let parking = PARKINGS
        .remove(parking)
        .and_then(std::sync::Arc::into_inner);
    let parking = parking.ok_or(Failure::Closed("input that is parked"))?;
    let id = parking.into_inner().finish(rows as u64)?;
    Ok(env.new_string(id.to_string())?)
}

/// Closing twice does nothing.
fn close_parking(parking: jlong) -> Result<()> {
    PARKINGS.remove(parking);
    Ok(())
}

/// Versions of the pending inputs, oldest first.
fn pending_versions<'local>(env: &mut Env<'local>, id: JString<'_>) -> Result<JLongArray<'local>> {
    let pending = match id.try_to_string(env)?.parse()? {
        StoreId::Version(id) => id.pending,
        StoreId::View(_) => Vec::new(),
    };
    let versions = pending.iter().map(|pending| pending.version as jlong);
    java_longs(env, &versions.collect::<Vec<_>>())
}

/// The reference of the last piece of an input, as bytes.
fn pending_segment<'local>(
    env: &mut Env<'local>,
    id: JString<'_>,
    version: jlong,
) -> Result<JByteArray<'local>> {
    let input = alone(env, &id, version)?;
    let segments = input
        .pending
        .iter()
        .flat_map(|pending| pending.segment.to_bytes());
    Ok(env.byte_array_from_slice(&segments.collect::<Vec<_>>())?)
}

/// The id of an input alone, for `waiting_for`.
fn input_alone<'local>(
    env: &mut Env<'local>,
    id: JString<'_>,
    version: jlong,
) -> Result<JString<'local>> {
    let input = alone(env, &id, version)?;
    Ok(env.new_string(input.to_string())?)
}

fn alone(env: &mut Env<'_>, id: &JString<'_>, version: jlong) -> Result<VersionId> {
    let id = id.try_to_string(env)?.parse::<VersionId>()?;
    let version = version_of(version)?;
    id.input_alone(version).ok_or_else(|| {
        Failure::from(Error::invalid_input(format!(
            "the id waits for no input of version {version}"
        )))
    })
}

/// Version, rows and bytes of each pending input, oldest first.
fn pending<'local>(
    env: &mut Env<'local>,
    store: jlong,
    id: JString<'_>,
) -> Result<JLongArray<'local>> {
    let id = id.try_to_string(env)?.parse::<VersionId>()?;
    let store = STORES.get(store)?;
    let mut found = Vec::new();
    for pending in &id.pending {
        let input = store.pending_input(&id, pending.version)?;
        let (rows, bytes) = (input.rows(), input.bytes()?);
        found.extend([pending.version, rows, bytes].map(|number| number as jlong));
    }
    java_longs(env, &found)
}

fn open_pending(env: &mut Env<'_>, store: jlong, id: JString<'_>, version: jlong) -> Result<jlong> {
    let id = id.try_to_string(env)?.parse::<VersionId>()?;
    let input = STORES
        .get(store)?
        .pending_input(&id, version_of(version)?)?;
    Ok(READINGS.insert(Mutex::new(input)))
}

/// The next bytes, at most `max_bytes`, and none at the end.
fn read_pending<'local>(
    env: &mut Env<'local>,
    reading: jlong,
    max_bytes: jint,
) -> Result<JByteArray<'local>> {
    let reading = READINGS.get(reading)?;
    let mut input = reading.lock();
    Ok(env.byte_array_from_slice(input.read(max_bytes.max(1) as usize)?)?)
}

/// Closing twice does nothing.
fn close_pending(reading: jlong) -> Result<()> {
    READINGS.remove(reading);
    Ok(())
}

/// See [`StateStore::mark_replayed`](holdfast_core::state::StateStore::mark_replayed).
fn mark_replayed(store: jlong) -> Result<()> {
    STORES.with(store, |store| Ok(store.lock().mark_replayed()?))
}
