//! Python arguments as the core's types.

use std::collections::BTreeMap;

use holdfast_core::CheckpointId;
use holdfast_core::format::{Compression, SegmentKind};
use holdfast_core::manager::{Fallbacks, ManagerOptions, Retained};
use holdfast_core::segment::{self, WriterOptions};
use holdfast_wire::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};

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

pub(crate) fn writer_options(max_file_bytes: i64, compression: &str) -> PyResult<WriterOptions> {
    let max_file_bytes = u64::try_from(max_file_bytes)
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| not_allowed("max_file_bytes", max_file_bytes, "at least 1 byte"))?;
    let compression = match compression {
        "lz4" => Compression::Lz4,
        "none" => Compression::None,
        other => {
            return Err(not_allowed(
                "compression",
                format!("'{other}'"),
                "one of lz4, none",
            ));
        }
    };
    Ok(WriterOptions {
        max_file_bytes,
        compression,
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
        // The core's word for "no bound".
        None => 0.0,
        Some(bound) if bound >= 1.0 => bound,
        Some(bound) => {
            return Err(not_allowed(
                "max_space_amplification",
                bound,
                "at least 1.0, or None",
            ));
        }
    };
    Ok(ManagerOptions {
        writer,
        across_checkpoints,
        max_space_amplification,
        ..ManagerOptions::default()
    })
}

pub(crate) fn segment_kind(name: &str) -> PyResult<SegmentKind> {
    Ok(match name {
        "snapshot" => SegmentKind::Snapshot,
        "changelog" => SegmentKind::Changelog,
        "base_image" => SegmentKind::BaseImage,
        "in_flight" => SegmentKind::InFlight,
        other => {
            let expected = "one of snapshot, changelog, base_image, in_flight";
            return Err(not_allowed("kind", format!("'{other}'"), expected));
        }
    })
}

/// Items of any mapping, `dict` or not.
pub(crate) fn items<'py>(
    mapping: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    mapping
        .cast::<PyMapping>()?
        .items()?
        .iter()
        .map(|item| {
            let item = item.cast_into::<PyTuple>()?;
            Ok((item.get_item(0)?, item.get_item(1)?))
        })
        .collect()
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
    /// The view of a message about `checkpoint`. Without `decided`, the last decision is the
    /// newest id that it names.
    pub(crate) fn at(self, checkpoint: u64, decided: Option<u64>) -> (CheckpointId, Retained) {
        let id = CheckpointId(checkpoint);
        let newest = self
            .0
            .keys()
            .next_back()
            .copied()
            .map_or(id, |newest| newest.max(id));
        let retained = Retained {
            decided: decided.map_or(newest, CheckpointId),
            checkpoints: self.0,
        };
        (id, retained)
    }
}
