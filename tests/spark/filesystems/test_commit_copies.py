"""Executors that die before their objects are finished, on a server of S3's protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import Disk
from support.spark.process_faults import COMMITS, Trial

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("query", "kills"),
    [
        ("aggregation", 1),
        *(pytest.param(query, len(COMMITS), marks=pytest.mark.full) for query in QUERIES),
    ],
)
def test_a_batch_outlives_an_executor_that_dies_before_its_object_is_finished(
    query: str, kills: int, tmp_path: Path
) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    with Disk.on_s3(folder) as disk:
        trial = Trial("holdfast", query, folder, disk)
        found = [*trial.results(lambda one, *_: one.executors_killed(kills))]
    assert {one["outcome"] for one in found} == {"right"}, found
