"""Options of a pipeline: what is refused, and how."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest

from holdfast._core import SnapshotManager
from holdfast.regions.api.options import PipelineOptions


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("name", "", "a string of 1 to 1,024 bytes"),
        ("name", "\u00fc" * 513, "a string of 1 to 1,024 bytes"),
        ("name", 7, "a string of 1 to 1,024 bytes"),
        ("regional", "no", "True or False"),
        ("bounded", 1, "True or False"),
        ("verify_state", None, "True or False"),
        ("region_threads", "x", "an integer of at least 1"),
        ("region_threads", 0, "an integer of at least 1"),
        ("channel_batches", 2.5, "an integer of at least 1"),
        ("max_file_bytes", 0, "an integer of at least 1"),
        ("history_days", 0, "an integer of at least 1"),
        ("history_days", 7.0, "an integer of at least 1"),
        ("history_days", 3651, "an integer of at most 3650"),
        ("region_timeout", timedelta(), "a timedelta above 0"),
        ("region_timeout", 60, "a timedelta above 0"),
        ("task_grace", timedelta(seconds=-1), "a timedelta of at least 0"),
        ("aligned_timeout", 0.5, "a timedelta of at least 0"),
        ("max_region_staleness", 10, "a number of checkpoints and a timedelta"),
        ("max_region_staleness", (10, 600), "a number of checkpoints and a timedelta"),
        ("max_failure_ratio", "0.3", "a number above 0 and at most 1"),
        ("num_retained", "3", "an integer of at least 1"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(option: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}=.* is not allowed: expected {expected}"):
        PipelineOptions(**{option: value})


def test_the_edges_are_allowed() -> None:
    options = PipelineOptions(
        name="x" * 1024,
        task_grace=timedelta(),
        aligned_timeout=timedelta(),
        region_threads=1,
        channel_batches=1,
        max_file_bytes=1,
        history_days=3650,
        max_region_staleness=(1, timedelta(milliseconds=1)),
    )
    assert options.tasks(gpu=False).aligned_timeout_ms == 0
    assert PipelineOptions().tasks(gpu=False).aligned_timeout_ms is None


def test_the_core_seals_files_at_the_same_size_by_default() -> None:
    default = inspect.signature(SnapshotManager).parameters["max_file_bytes"].default
    assert PipelineOptions().max_file_bytes == default
