"""An idle store does not keep a large old file alive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from support.spark.queries import STATE, drain, settings, source, write_batch
from support.spark.state_files import merged_files

KEYS = 40


def test_idle_stores_move_out_of_wasteful_files(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    frequent = {
        "spark.sql.streaming.minBatchesToRetain": "2",
        STATE + "holdfast.maxFileBytes": "65536",
        STATE + "holdfast.compression": "none",
    }
    number = 0
    pinned = 0
    with settings(spark, frequent):
        # Every key once. From then on one key, with values so large that they fill the files.
        write_batch(folder, 0, [{"key": key, "text": "small"} for key in range(KEYS)])
        state = (
            source(spark, folder)
            .groupBy("key")
            .agg(F.count("*").alias("n"), F.last("text").alias("text"))
        )
        drain(state, checkpoint=checkpoint, mode="update", into={})
        (first,) = merged_files(checkpoint)
        deadline = time.monotonic() + 120
        while first.exists() and time.monotonic() < deadline:
            # Maintenance and clean-up go on while a query runs.
            for _ in range(20):
                number += 1
                write_batch(folder, number, [{"key": 7, "text": str(number) * 10_000}])
            query = drain(state, checkpoint=checkpoint, mode="update", into={})
            for batch in query.recentProgress:
                (operator,) = batch["stateOperators"]
                pinned = max(pinned, operator["customMetrics"]["holdfastPinnedBytes"])
    assert pinned > 0, "the progress told of the waste"
    assert not first.exists(), "the idle partitions' state was written again elsewhere"
    rows = spark.read.format("statestore").load(str(checkpoint))
    counts = {row["key"][0]: row["value"][0] for row in rows.collect()}
    assert counts == {key: 1 + number if key == 7 else 1 for key in range(KEYS)}


@pytest.mark.full
def test_a_quiet_side_of_a_join_keeps_no_files_of_the_other_side(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right, checkpoint = (tmp_path / name for name in ("left", "right", "checkpoint"))
    for folder in (left, right):
        folder.mkdir()
    frequent = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # Every segment fills a file, so that files stand for segments.
        STATE + "holdfast.maxFileBytes": "1",
    }
    write_batch(right, 0, [{"key": key, "right": key} for key in range(KEYS)])
    number = 0
    with settings(spark, frequent):
        deadline = time.monotonic() + 120
        # Two stores of the left side in two partitions: four changelogs a batch.
        while number < 40 or (len(merged_files(checkpoint)) > 80 and time.monotonic() < deadline):
            for _ in range(20):
                write_batch(left, number, [{"key": key, "left": number} for key in range(KEYS)])
                number += 1
            joined = source(spark, left).join(source(spark, right), "key")
            drain(joined, checkpoint=checkpoint, mode="append", into={})
    assert len(merged_files(checkpoint)) <= 80
    for side, rows in (("left", KEYS * number), ("right", KEYS)):
        state = spark.read.format("statestore").option("joinSide", side).load(str(checkpoint))
        assert state.count() == rows
