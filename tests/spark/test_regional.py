"""Regional pipelines in Structured Streaming, on real Spark."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast.regions.runners.spark.runner import KEEP_FREED_MEMORY
from support.regional.pipelines import COUNTED, Row, RunningCount, expected, output_of, rows_of
from support.spark.queries import settings
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.versions]

REGIONS = [f"r{number:02}" for number in range(6)]


class FailingOnce(RunningCount):
    """Does `what` when it meets an id for the first time; `marks` is a folder of what it did."""

    def __init__(self, marks: Path, ids: Sequence[int], what: str) -> None:
        self.marks = str(marks)
        self.ids = frozenset(ids)
        self.what = what

    def process(self, batch: pa.RecordBatch) -> Any:
        for row_id in self.ids.intersection(batch.column("id").to_pylist()):
            mark = Path(self.marks) / str(row_id)
            if not mark.exists():
                mark.touch()
                if self.what == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError(f"in trouble at {row_id}")
        return super().process(batch)


def start(
    spark: SparkSession, path: Path, operator: holdfast.Operator, **options: Any
) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger={"availableNow": True}, **options)
    )


def written(path: Path, count: int, *, first: int = 0, each: int = 60) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=each) for number in range(first, first + count)]
    for number, rows in enumerate(batches, start=first):
        write_rows(path / "in", number, rows)
    return batches


def test_every_row_reaches_the_output_once_also_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    start(spark, tmp_path, RunningCount()).awaitTermination()
    batches += written(tmp_path, 2, first=2)
    query = start(spark, tmp_path, RunningCount())
    query.awaitTermination()
    assert query.latest.batch_id == 3
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_failing_region_falls_back_and_catches_up(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = written(tmp_path, 3, each=90)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = start(spark, tmp_path, FailingOnce(marks, [1002], "raise"))
    query.awaitTermination()
    outcomes = [(row.batch_id, row.outcome) for row in query.history()]
    assert outcomes == [(-1, "global"), (0, "global"), (1, "regional"), (2, "global")]
    assert [failed.region for failed in query.history()[2].failed] == ["r02"]
    query.print_history()
    assert "regional  r02 at 2: RuntimeError: in trouble at 1002 " in capsys.readouterr().out
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_killed_worker_costs_its_regions_one_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 3)
    marks = tmp_path / "marks"
    marks.mkdir()
    # All three regions of one of the two tasks may be open when it dies: that is one failure.
    query = start(spark, tmp_path, FailingOnce(marks, [1002], "kill"))
    query.awaitTermination()
    regional = query.history()[2]
    assert (regional.batch_id, regional.outcome) == (1, "regional")
    assert "r02" in {failed.region for failed in regional.failed}
    assert {failed.region for failed in regional.failed} <= {"r00", "r02", "r04"}
    assert query.latest.is_global
    assert output_of(tmp_path / "out") == expected(batches)


def test_what_regions_owe_is_replayed_before_the_query_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = start(spark, tmp_path, FailingOnce(marks, [1003], "raise"))
    query.awaitTermination()
    assert [row.kind for row in query.history()][-1] == "final"
    assert query.status()["failed"] == {}
    assert query.status()["in_flight_rows"] == 0
    assert output_of(tmp_path / "out") == expected(batches)


class NotingEnvironment(RunningCount):
    """Writes down what the allocators of its worker were told to keep."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def process(self, batch: pa.RecordBatch) -> Any:
        told = {name: os.environ.get(name) for name in KEEP_FREED_MEMORY}
        self.note.write_text(json.dumps(told))
        return super().process(batch)


@pytest.mark.parametrize(
    "setting", [{}, {"MIMALLOC_PURGE_DELAY": "7"}, {"MALLOC_TRIM_THRESHOLD_": "7000000"}]
)
def test_workers_keep_freed_memory_for_the_next_batch_unless_the_user_said_how_much(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: dict[str, str],
) -> None:
    # As Spark has it of spark.executorEnv.
    monkeypatch.setattr(spark.sparkContext, "environment", dict(setting))
    batches = written(tmp_path, 1)
    start(spark, tmp_path, NotingEnvironment(tmp_path / "note")).awaitTermination()
    assert json.loads((tmp_path / "note").read_text()) == {**KEEP_FREED_MEMORY, **setting}
    assert output_of(tmp_path / "out") == expected(batches)


class Through(holdfast.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def test_timestamps_and_literals_pass_in_any_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    (batch,) = written(tmp_path, 1)
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = regional_source(spark, tmp_path / "in").select(
            "region", "id", F.timestamp_seconds("id").alias("at"), F.lit(1).alias("one")
        )
        (
            holdfast.regional(frame, region_by="region")
            .apply(Through(), schema="region string, id long, at timestamp, one int", name="all")
            .write_parquet(tmp_path / "out")
            .start(tmp_path / "ckpt", trigger={"availableNow": True})
            .awaitTermination()
        )
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in rows_in(path)]
    assert sorted((row["region"], row["id"]) for row in rows) == sorted(row[:2] for row in batch)
    assert all(row["at"].timestamp() == row["id"] and row["one"] == 1 for row in rows)


def rows_in(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def test_a_region_in_two_tasks_ends_the_query_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in", 0, rows_of(0, REGIONS), split=True)
    query = start(spark, tmp_path, RunningCount())
    with pytest.raises(holdfast.RegionalQueryError, match="arrived in two tasks"):
        query.awaitTermination()
    assert output_of(tmp_path / "out") == []


def test_an_exchange_switches_regional_mode_off_and_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, 2)
    marks = tmp_path / "marks"
    marks.mkdir()
    frame = regional_source(spark, tmp_path / "in").repartition(2, "region")
    pipeline = (
        holdfast.regional(frame, region_by="region")
        .apply(FailingOnce(marks, [1002], "raise"), schema=COUNTED, name="count")
        .write_parquet(tmp_path / "out")
    )
    with pytest.warns(UserWarning, match="Exchange hashpartitioning"):
        query = pipeline.start(
            tmp_path / "ckpt", trigger={"availableNow": True}, tolerable_failed_checkpoints=1
        )
    query.awaitTermination()
    outcomes = [row.outcome for row in query.history()]
    assert outcomes == ["global", "global", "aborted", "global"]
    assert output_of(tmp_path / "out") == expected(batches)
