"""Stores over many runs share the handles of their files, and leave descriptors to others."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from support.spark.jobs import run_job

#: A JVM with Spark's jars, and no stores, has 340 of them, and for a moment 100 more.
DESCRIPTORS = 560
PARTITIONS = 64


@pytest.mark.full
@pytest.mark.parametrize(
    ("max_file_bytes", "most_files"),
    [
        # Few runs share a file: an eighth of the descriptors is for those that are read, ...
        pytest.param(2_000, DESCRIPTORS // 8, id="many-files"),
        # ... and all do: what is read is one file or two.
        pytest.param(32 << 20, 2, id="few-files"),
    ],
)
def test_stores_over_more_runs_than_there_are_descriptors_join_all_rows(
    max_file_bytes: int, most_files: int, tmp_path: Path
) -> None:
    runs = 4 * PARTITIONS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"at most {hard} descriptors are allowed here")
    limited = f'ulimit -n {DESCRIPTORS} && exec "$@"'
    sizes = [f"--partitions={PARTITIONS}", "--keys=1000", f"--max-file-bytes={max_file_bytes}"]
    printed = run_job(
        "spark/few_descriptors_job.py",
        *sizes,
        folder=tmp_path,
        settings={},
        under=("bash", "-c", limited, "bash"),
    )
    found = json.loads(printed[-1])
    assert found["runs"] >= runs
    # Maintenance has a file open beside them, and there is the one that is written.
    assert found["files"] <= most_files + 4
    assert found["descriptors"] < DESCRIPTORS
