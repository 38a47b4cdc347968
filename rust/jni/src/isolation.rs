//! Decisions about failures of partitions. Facts come from Java in JSON, and actions go back.

use holdfast_core::isolation::{Marker, Run};
use jni::sys::{jboolean, jlong};
use parking_lot::Mutex;

use crate::guard::{Result, natives};
use crate::handles::Handles;

static RUNS: Handles<Mutex<Run>> = Handles::new("run of a query");

natives! {
    rust fn open_run(id: JString, checkpoint: JString) -> jlong;
    rust fn know_marker(run: jlong, batch: jlong, marker: [jbyte]) -> jboolean;
    rust fn marker_of(run: jlong, batch: jlong) -> JString;
    rust fn tell_run(run: jlong, batch: jlong, fact: [jbyte]) -> [jbyte];
    raw fn close_run(run: jlong);
}

fn open_run(id: String, checkpoint: String) -> Result<jlong> {
    Ok(RUNS.insert(Mutex::new(Run::new(id, checkpoint))))
}

/// Returns false if the marker is damaged.
fn know_marker(run: jlong, batch: jlong, marker: Vec<u8>) -> Result<jboolean> {
    let marker = Marker::from_json(&marker);
    let is_sound = marker.is_ok();
    if let Ok(marker) = marker {
        RUNS.get(run)?.lock().know(batch as u64, marker);
    }
    Ok(is_sound)
}

/// The text of the marker of a batch; null without one.
fn marker_of(run: jlong, batch: jlong) -> Result<Option<String>> {
    let run = RUNS.get(run)?;
    let marker = run.lock().marker(batch as u64).map(Marker::to_json);
    Ok(marker)
}

fn tell_run(run: jlong, batch: jlong, fact: Vec<u8>) -> Result<Vec<u8>> {
    Ok(RUNS.get(run)?.lock().take_json(batch as u64, &fact)?)
}

fn close_run(run: jlong) -> Result<()> {
    RUNS.remove(run);
    Ok(())
}
