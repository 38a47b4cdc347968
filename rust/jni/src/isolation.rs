//! Decisions about failures of partitions and of rows. Facts come from Java in JSON, and actions go
//! back.

use holdfast_core::{bad_rows, isolation};
use jni::sys::{jboolean, jlong};
use parking_lot::Mutex;

use crate::guard::{Result, natives};
use crate::handles::Handles;

static RUNS: Handles<Mutex<Machine>> = Handles::new("run of a query");

/// Decides in one run of a query.
enum Machine {
    Partitions(isolation::Run),
    Rows(bad_rows::Run),
}

natives! {
    rust fn open_run(id: JString, checkpoint: JString) -> jlong;
    rust fn open_rows_run() -> jlong;
    rust fn know_marker(run: jlong, batch: jlong, marker: [jbyte]) -> jboolean;
    rust fn marker_of(run: jlong, batch: jlong) -> JString;
    rust fn tell_run(run: jlong, batch: jlong, fact: [jbyte]) -> [jbyte];
    raw fn close_run(run: jlong);
}

fn open_run(id: String, checkpoint: String) -> Result<jlong> {
    let run = isolation::Run::new(id, checkpoint);
    Ok(RUNS.insert(Mutex::new(Machine::Partitions(run))))
}

fn open_rows_run() -> Result<jlong> {
    Ok(RUNS.insert(Mutex::new(Machine::Rows(bad_rows::Run::default()))))
}

/// Returns false if the marker is damaged.
fn know_marker(run: jlong, batch: jlong, marker: Vec<u8>) -> Result<jboolean> {
    let batch = batch as u64;
    let known = match &mut *RUNS.get(run)?.lock() {
        Machine::Partitions(run) => {
            isolation::Marker::from_json(&marker).map(|marker| run.know(batch, marker))
        }
        Machine::Rows(run) => {
            bad_rows::Marker::from_json(&marker).map(|marker| run.know(batch, marker))
        }
    };
    Ok(known.is_ok())
}

/// The text of the marker of a batch; null without one.
fn marker_of(run: jlong, batch: jlong) -> Result<Option<String>> {
    let batch = batch as u64;
    Ok(match &*RUNS.get(run)?.lock() {
        Machine::Partitions(run) => run.marker(batch).map(isolation::Marker::to_json),
        Machine::Rows(run) => run.marker(batch).map(bad_rows::Marker::to_json),
    })
}

fn tell_run(run: jlong, batch: jlong, fact: Vec<u8>) -> Result<Vec<u8>> {
    let batch = batch as u64;
    Ok(match &mut *RUNS.get(run)?.lock() {
        Machine::Partitions(run) => run.take_json(batch, &fact)?,
        Machine::Rows(run) => run.take_json(batch, &fact)?,
    })
}

fn close_run(run: jlong) -> Result<()> {
    RUNS.remove(run);
    Ok(())
}
