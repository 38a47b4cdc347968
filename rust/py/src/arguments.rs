//! Python arguments as the core's types.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_core::CheckpointId;
use holdfast_core::format::{Compression, SegmentKind};
use holdfast_core::manager::{Fallbacks, ManagerOptions, Retained};
use holdfast_core::segment::{self, WriterOptions};
use holdfast_core::state::MemoryBudget;
use holdfast_wire::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::values::{Owner, SegmentRef, core_refs};

/// Signed, so that the extension and not PyO3 refuses a negative number.
pub(crate) const DEFAULT_MAX_FILE_BYTES: i64 = segment::DEFAULT_MAX_FILE_BYTES.cast_signed();

// Text signatures and the stub can only have the number itself.
const _: () = assert!(DEFAULT_MAX_FILE_BYTES == 33_554_432);

pub(crate) fn not_allowed(option: &str, value: impl std::fmt::Display, expected: &str) -> PyErr {
    PyValueError::new_err(format!(
        "{option}={value} is not allowed: expected {expected}"
    ))
}

/// A count, a size or an id. Signed: a negative number gives a ValueError, not PyO3's error.
pub(crate) fn natural(option: &str, value: i64) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| not_allowed(option, value, "at least 0"))
}

/// The value that has the name `found`.
pub(crate) fn one_of<T: Copy>(option: &str, found: &str, known: &[(&str, T)]) -> PyResult<T> {
    let named = known.iter().find(|(name, _)| *name == found);
    named.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let expected = format!("one of {}", names.join(", "));
        not_allowed(option, format!("'{found}'"), &expected)
    })
}

pub(crate) fn writer_options(max_file_bytes: i64, compression: &str) -> PyResult<WriterOptions> {
    let max_file_bytes = u64::try_from(max_file_bytes)
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| not_allowed("max_file_bytes", max_file_bytes, "at least 1 byte"))?;
    let known = [("lz4", Compression::Lz4), ("none", Compression::None)];
    Ok(WriterOptions {
        max_file_bytes,
        compression: one_of("compression", compression, &known)?,
        copies: false,
        tells: false,
    })
}

pub(crate) fn manager_options(
    max_file_bytes: i64,
    across_checkpoints: Option<bool>,
    compression: &str,
    max_space_amplification: Option<f64>,
) -> PyResult<ManagerOptions> {
    let writer = writer_options(max_file_bytes, compression)?;
    let max_space_amplification = match max_space_amplification {
        None => 0.0, // the core's word for "no bound"
        Some(bound) if bound >= 1.0 => bound,
        Some(bound) => {
            let expected = "at least 1.0, or None";
            return Err(not_allowed("max_space_amplification", bound, expected));
        }
    };
    // Never reached. With a target, large tables open without being loaded.
    let tables = MemoryBudget::unlimited();
    tables.set_target_bytes(Some(1 << 62));
    Ok(ManagerOptions {
        writer,
        across_checkpoints,
        max_space_amplification,
        tables: Arc::new(tables),
        ..ManagerOptions::default()
    })
}

/// Kinds of segments that a manager writes.
pub(crate) const SEGMENT_KINDS: [(&str, SegmentKind); 3] = [
    ("snapshot", SegmentKind::Snapshot),
    ("changelog", SegmentKind::Changelog),
    ("in_flight", SegmentKind::InFlight),
];

/// Items of any mapping, `dict` or not.
pub(crate) fn items<'py>(
    mapping: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let items = mapping.cast::<PyMapping>()?.items()?;
    items.iter().map(|item| item.extract()).collect()
}

/// `{owner: origin}`.
pub(crate) struct FallbacksArgument(pub(crate) Fallbacks);

impl<'py> FromPyObject<'_, 'py> for FallbacksArgument {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        items(&obj)?
            .into_iter()
            .map(|(owner, origin)| {
                let owner: Owner = owner.extract()?;
                Ok((owner.0, CheckpointId(origin.extract()?)))
            })
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

/// `{owner: [segment]}`.
pub(crate) struct ReleasedArgument(pub(crate) Released);

impl<'py> FromPyObject<'_, 'py> for ReleasedArgument {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        items(&obj)?
            .into_iter()
            .map(|(owner, refs)| {
                let owner: Owner = owner.extract()?;
                let refs: Vec<SegmentRef> = refs.extract()?;
                Ok((owner.0, core_refs(&refs)))
            })
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

/// `{checkpoint: {owner: origin}}`.
pub(crate) struct RetainedArgument(BTreeMap<CheckpointId, Fallbacks>);

impl<'py> FromPyObject<'_, 'py> for RetainedArgument {
    type Error = PyErr;

    fn extract(obj: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        items(&obj)?
            .into_iter()
            .map(|(id, fallbacks)| {
                let fallbacks: FallbacksArgument = fallbacks.extract()?;
                Ok((CheckpointId(id.extract()?), fallbacks.0))
            })
            .collect::<PyResult<_>>()
            .map(Self)
    }
}

impl RetainedArgument {
    /// The view of a message about `checkpoint`; `decided` defaults to the newest id that it names.
    pub(crate) fn at(self, checkpoint: u64, decided: Option<u64>) -> (CheckpointId, Retained) {
        let id = CheckpointId(checkpoint);
        let newest = self.0.keys().next_back().map_or(id, |last| id.max(*last));
        let retained = Retained {
            decided: decided.map_or(newest, CheckpointId),
            checkpoints: self.0,
        };
        (id, retained)
    }
}
