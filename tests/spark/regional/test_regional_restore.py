"""Savepoints, restore and going back on real Spark: its own position in the stream goes along."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from holdfast._core import CheckpointMetadata
from holdfast.regions.checkpoint.copy import write_image
from holdfast.regions.driver import pipeline_driver as driver
from support.regional.pipelines import COUNTED, Row, RunningCount, expected, output_of, rows_of
from support.regional.restorable import Counting, damage
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.spark

REGIONS = [f"r{number:02}" for number in range(4)]
NOW = {"availableNow": True}


def start(
    spark: SparkSession, path: Path, *, checkpoint: str = "ckpt", **options: Any
) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(options.pop("operator", Counting()), schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / checkpoint, **options)
    )


def written(path: Path, numbers: Sequence[int]) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=20) for number in numbers]
    for number, rows in zip(numbers, batches, strict=True):
        write_rows(path / "in", number, rows)
    return batches


def test_a_stream_goes_on_where_its_savepoint_was_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, range(2))
    query = start(spark, tmp_path)
    query.processAllAvailable()
    query.stop_with_savepoint(tmp_path / "saved")
    assert not query.isActive
    assert query.exception() is None
    shutil.rmtree(tmp_path / "ckpt")
    batches += written(tmp_path, range(2, 4))
    origin = holdfast.restore(tmp_path / "saved", mode="claim")
    query = start(spark, tmp_path, checkpoint="next", restore=origin, trigger=NOW)
    query.awaitTermination()
    assert query.latest.batch_id == 3
    assert output_of(tmp_path / "out") == expected(batches)
    assert not (tmp_path / "saved").exists()
    # The script that started it runs once more.
    batches += written(tmp_path, range(4, 5))
    query = start(spark, tmp_path, checkpoint="next", restore=origin, trigger=NOW)
    query.awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_batch_that_a_savepoint_came_before_is_run_by_the_next_pipeline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = written(tmp_path, range(1))
    query = start(spark, tmp_path)
    query.processAllAvailable()
    waits = threading.Event()
    run_batch = driver.PipelineDriver.run_batch

    def note_and_run(self: Any, number: int, *arguments: Any, **options: Any) -> None:
        waits.set()
        run_batch(self, number, *arguments, **options)

    def write_when_a_batch_waits(*arguments: Any, **options: Any) -> None:
        batches.extend(written(tmp_path, range(1, 2)))
        assert waits.wait(timeout=120)
        write_image(*arguments, **options)

    monkeypatch.setattr(driver.PipelineDriver, "run_batch", note_and_run)
    monkeypatch.setattr(driver, "write_image", write_when_a_batch_waits)
    query.stop_with_savepoint(tmp_path / "saved")
    assert query.exception() is None
    assert output_of(tmp_path / "out") == expected(batches[:1])
    monkeypatch.undo()
    origin = holdfast.restore(tmp_path / "saved")
    start(spark, tmp_path, checkpoint="next", restore=origin, trigger=NOW).awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_savepoint_of_a_query_that_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    batches = written(tmp_path, range(2))
    query = start(spark, tmp_path, trigger=NOW)
    query.awaitTermination()
    query.stop_with_savepoint(tmp_path / "saved")
    batches += written(tmp_path, range(2, 3))
    origin = holdfast.restore(tmp_path / "saved")
    start(spark, tmp_path, checkpoint="next", restore=origin, trigger=NOW).awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_savepoint_that_cannot_be_written_leaves_the_query_running(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = written(tmp_path, range(1))
    (tmp_path / "saved").write_text("a file")
    query = start(spark, tmp_path)
    query.processAllAvailable()
    with pytest.raises(FileExistsError, match="saved"):
        query.stop_with_savepoint(tmp_path / "saved")
    batches += written(tmp_path, range(1, 2))
    query.processAllAvailable()
    query.stop()
    assert output_of(tmp_path / "out") == expected(batches)


def test_the_stream_goes_back_with_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    batches = written(tmp_path, range(3))
    start(spark, tmp_path, trigger=NOW).awaitTermination()
    damage(tmp_path / "ckpt")
    with pytest.raises(holdfast.DamagedCheckpointError) as raised:
        start(spark, tmp_path, trigger=NOW)
    assert raised.value.intact is not None
    batches += written(tmp_path, range(3, 4))
    query = start(spark, tmp_path, trigger=NOW, checkpoint_id=raised.value.intact)
    query.awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)
    batches += written(tmp_path, range(4, 5))
    start(spark, tmp_path, trigger=NOW).awaitTermination()
    assert output_of(tmp_path / "out") == expected(batches)


def test_the_stream_goes_back_to_its_very_beginning(spark: SparkSession, tmp_path: Path) -> None:
    batches = written(tmp_path, range(2))
    start(spark, tmp_path, trigger=NOW, operator=RunningCount()).awaitTermination()
    first = CheckpointMetadata.list(tmp_path / "ckpt" / "metadata")[0]
    query = start(spark, tmp_path, trigger=NOW, operator=RunningCount(), checkpoint_id=first)
    query.awaitTermination()
    assert first == 1
    assert output_of(tmp_path / "out") == expected(batches)


class Large(RunningCount):
    """Has an array that is not in the metadata."""

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)
        self.by_key = ctx.state.array("by_key", shape=(300,), dtype="int64")


@pytest.mark.full
def test_idle_regions_that_checkpoints_share_go_on_after_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    regions = [f"r{number:04}" for number in range(1_100)]
    batches: list[list[Row]] = []
    for active in (regions, regions[:4], regions[:4], regions[2:6], regions[:4], regions):
        batches.append(rows_of(len(batches), active, each=1))
        write_rows(tmp_path / "in", len(batches), batches[-1])
        start(spark, tmp_path, operator=Large(), trigger=NOW).awaitTermination()
        assert output_of(tmp_path / "out") == expected(batches)
    shared = list((tmp_path / "ckpt" / "metadata").glob("*.hfb"))
    assert len(shared) == 1
