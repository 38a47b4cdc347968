"""Executors that die before their objects are finished, on a server of S3's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import Disk
from support.spark.process_faults import MOMENTS, Trial, Tried
from support.spark.watched_s3 import WRITES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("query", "moments"),
    [
        ("aggregation", [WRITES]),
        *(pytest.param(query, list(MOMENTS), marks=pytest.mark.full) for query in QUERIES),
    ],
)
def test_a_batch_outlives_an_executor_that_dies_before_its_object_is_finished(
    query: str, moments: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "faults"
    folder.mkdir()
    with Disk.on_s3(folder) as disk:
        trial = Trial("holdfast", query, folder, disk)
        found = [*trial.results(lambda one, *_: one.executors_killed_on_s3(moments))]
    assert {one["outcome"] for one in found} == {"right"}, found


@pytest.mark.full
def test_an_executor_is_decommissioned_and_two_of_four_die_at_once(tmp_path: Path) -> None:
    def faults(trial: Trial, *_: object) -> Iterator[Tried]:
        yield from trial.executor_decommissioned()
        yield from trial.two_executors_killed()

    folder = tmp_path / "faults"
    folder.mkdir()
    with Disk.on_s3(folder) as disk:
        decommissioned, two = Trial("holdfast", "aggregation", folder, disk).results(faults)
    assert decommissioned["outcome"] == "right", decommissioned
    # The second executor may have had the copy of the first.
    assert two["outcome"] in {"right", "restart"}, two
