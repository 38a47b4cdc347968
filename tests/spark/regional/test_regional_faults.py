"""Workers that die or hang and storage that fails cost regional pipelines a checkpoint, no row."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import COUNTED, Row, RunningCount, expected, output_of, rows_of
from support.spark.regional_input import regional_source, write_rows

# Several queries that wait for timeouts: for when the machine is busy.
# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

REGIONS = [f"r{number:02}" for number in range(6)]
#: Of the task that reads r02.
NEIGHBOURS = {"r00", "r02", "r04"}


class Marked(RunningCount):
    """Calls `act` when region r02 meets an id of `ids`, the first `times` times."""

    def __init__(self, folder: Path, ids: Sequence[int], *, times: int = 1) -> None:
        self.folder = folder
        self.ids = frozenset(ids)
        self.times = times

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == "r02" and self.ids.intersection(batch.column("id").to_pylist()):
            nth = 0
            while (self.folder / f"mark-{nth}").exists():
                nth += 1
            if nth < self.times:
                (self.folder / f"mark-{nth}").touch()
                self.act(nth)
        return super().process(batch)

    def act(self, nth: int) -> None:
        raise NotImplementedError


class Killing(Marked):
    def act(self, nth: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Stopping(Marked):
    def act(self, nth: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class Unmounting(Marked):
    """Puts a file in the place of the segments' folder."""

    def open(self, ctx: holdfast.OperatorContext) -> None:
        super().open(ctx)
        # Too large for the metadata, so that there are segments.
        self.ballast = ctx.state.array("ballast", shape=(300,), dtype="int64")

    def act(self, nth: int) -> None:
        segments = self.folder / "ckpt" / "segments"
        segments.rename(self.folder / "away")
        segments.touch()


def start(
    spark: SparkSession, path: Path, operator: holdfast.Operator, **options: Any
) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger={"availableNow": True}, **options)
    )


def written(path: Path, numbers: range) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=60) for number in numbers]
    for number, rows in zip(numbers, batches, strict=True):
        write_rows(path / "in", number, rows)
    return batches


def test_a_worker_that_is_stopped_is_ended_and_its_rows_are_stored(
    spark: SparkSession, tmp_path: Path
) -> None:  # R4, R5
    batches = written(tmp_path, range(1))
    # Without a timeout: workers may have to start first.
    start(spark, tmp_path, RunningCount()).awaitTermination()
    batches += written(tmp_path, range(1, 3))
    query = start(
        spark,
        tmp_path,
        Stopping(tmp_path, [1002]),
        region_timeout=timedelta(seconds=6),
        # On a busy machine, others may be late as well.
        max_failure_ratio=0.9,
        max_consecutive_failures=10,
        tolerable_failed_checkpoints=10,
    )
    query.awaitTermination()
    fallen = [failed for row in query.history() for failed in row.failed if failed.region == "r02"]
    assert "did not answer within region_timeout" in fallen[0].cause
    assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_worker_that_is_killed_in_every_attempt_ends_the_query_and_loses_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:  # R22
    batches = written(tmp_path, range(6))
    killing = Killing(tmp_path, range(1000, 2000), times=100)
    query = start(
        spark,
        tmp_path,
        killing,
        max_failure_ratio=0.5,
        max_consecutive_failures=10,
        max_region_staleness=(2, timedelta(hours=1)),
    )
    with pytest.raises(holdfast.RegionalQueryError, match=r"r0[024]") as raised:
        query.awaitTermination()
    assert "worker" in str(raised.value)
    assert query.latest.batch_id < 5
    failed = set(query.latest.failed)
    assert "r02" in failed
    assert failed <= NEIGHBOURS
    start(spark, tmp_path, RunningCount()).awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)


def test_storage_that_is_away_ends_the_query_and_loses_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:  # R3, R24
    batches = written(tmp_path, range(3))
    query = start(spark, tmp_path, Unmounting(tmp_path, [1002]), max_file_bytes=1)
    # Regions that had written their state in the moment before fail in another way.
    with pytest.raises(holdfast.RegionalQueryError, match=r"could not be (stored|made durable)"):
        query.awaitTermination()
    assert query.latest.batch_id == 0
    assert output_of(tmp_path / "out") == expected(batches[:1])
    segments = tmp_path / "ckpt" / "segments"
    segments.unlink()
    (tmp_path / "away").rename(segments)
    start(spark, tmp_path, Unmounting(tmp_path, [])).awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)
