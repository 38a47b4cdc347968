"""What lies on disk: few merged files, nothing for partitions without changes, readable state."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from support.spark.queries import STATE, Batches, drain, settings, source, write_batch
from support.spark.state_files import commit_ids, merged_files, segment_of


@pytest.fixture(scope="module")
def counted_checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches over 200 partitions; batch 1 touches every key, batch 2 a single one."""
    folder = tmp_path_factory.mktemp("counted") / "input"
    checkpoint = folder.with_name("checkpoint")
    folder.mkdir()
    everything = [{"key": i} for i in range(2_000)]
    for number, rows in enumerate([everything, everything, [{"key": 7}]]):
        write_batch(folder, number, rows)
    with settings(spark, {"spark.sql.shuffle.partitions": "200"}):
        counts = source(spark, folder).groupBy("key").count()
        drain(counts, checkpoint=checkpoint, mode="update", into={})
    return checkpoint


def test_200_partitions_share_one_file(counted_checkpoint: Path) -> None:
    # Three batches: Spark's own providers would have left 600 files.
    assert len(merged_files(counted_checkpoint)) == 1
    stray = [
        path
        for path in (counted_checkpoint / "state").rglob("*")
        if path.is_file() and "_metadata" not in path.parts and "holdfast" not in path.parts
    ]
    # One record of the Spark that wrote, with Hadoop's checksum, whatever the number of batches.
    assert sorted(path.name for path in stray) == [".holdfast.json.crc", "holdfast.json"]


def test_a_partition_without_changes_writes_nothing(counted_checkpoint: Path) -> None:
    before, after = (commit_ids(counted_checkpoint, batch)["0"] for batch in (1, 2))
    assert len(before) == len(after) == 200

    changed = [p for p in range(200) if segment_of(before[p][0]) != segment_of(after[p][0])]
    assert len(changed) == 1, "only the partition of key 7 wrote a segment"
    assert all(before[p][0] != after[p][0] for p in range(200)), "every commit has an id of its own"


def test_a_checkpoint_that_was_deleted_can_be_begun_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    # In one application, as in a notebook: the executor has the deleted file open still.
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    for number in range(2):
        write_batch(folder, number, [{"key": key} for key in range(20)])
    counts = source(spark, folder).groupBy("key").count()
    runs: list[Batches] = [{}, {}]
    for rows in runs:
        drain(counts, checkpoint=checkpoint, mode="update", into=rows)
        state = spark.read.format("statestore").load(str(checkpoint))
        assert state.where("value.count = 2").count() == 20
        shutil.rmtree(checkpoint)
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]


def test_the_state_reader_reads_every_retained_batch(
    spark: SparkSession, counted_checkpoint: Path
) -> None:
    def state(**options: str) -> dict[int, int]:
        reader = spark.read.format("statestore").options(**options)
        rows = (
            reader.load(str(counted_checkpoint)).select("key.key", F.col("value.count")).collect()
        )
        return {row[0]: row[1] for row in rows}

    assert state() == {i: 3 if i == 7 else 2 for i in range(2_000)}
    assert state(batchId="0") == dict.fromkeys(range(2_000), 1)


def test_the_state_reader_reads_both_sides_of_a_join(spark: SparkSession, tmp_path: Path) -> None:
    left, right, checkpoint = tmp_path / "left", tmp_path / "right", tmp_path / "checkpoint"
    for folder in (left, right):
        folder.mkdir()
        write_batch(folder, 0, [{"key": i, "side": folder.name} for i in range(10)])
    joined = source(spark, left).join(source(spark, right), "key")
    drain(joined, checkpoint=checkpoint, mode="append", into={})
    for side in ("left", "right"):
        rows = (
            spark.read.format("statestore")
            .option("joinSide", side)
            .load(str(checkpoint))
            .select("value.side")
            .collect()
        )
        assert [row[0] for row in rows] == [side] * 10
    metadata = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    assert {row["operatorName"] for row in metadata} == {"symmetricHashJoin"}


def test_custom_metrics_reach_the_progress(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    write_batch(folder, 0, [{"key": i} for i in range(50)])
    counts = source(spark, folder).groupBy("key").count()
    query = drain(counts, checkpoint=tmp_path / "checkpoint", mode="update", into={})
    operator = query.recentProgress[0]["stateOperators"][0]
    assert operator["numRowsTotal"] == 50
    assert operator["memoryUsedBytes"] > 0
    assert operator["customMetrics"]["holdfastWrittenBytes"] > 50 * 32
    assert operator["customMetrics"]["holdfastLoads"] == 4


EXTRA_SPACE = "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint"


def test_files_that_no_retained_batch_needs_are_reclaimed(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    batches, keys = 60, 40
    frequent = {
        "spark.sql.streaming.minBatchesToRetain": "2",
        # Every segment fills a file, so that files stand for segments.
        STATE + "holdfast.maxFileBytes": "1",
    }

    def go_on(numbers: range, extra: str) -> None:
        for number in numbers:
            write_batch(folder, number, [{"key": key} for key in range(keys)])
        with settings(spark, {**frequent, EXTRA_SPACE: extra}):
            counts = source(spark, folder).groupBy("key").count()
            drain(counts, checkpoint=checkpoint, mode="update", into={})

    go_on(range(20), extra="15")
    assert len(merged_files(checkpoint)) >= 80, "30 batches may pile up, and 20 are there"
    # One batch may.
    go_on(range(20, 40), extra="0.3")
    go_on(range(40, batches), extra="0.3")
    # 60 batches of 4 partitions wrote 240 changelogs, one file each.
    deadline = time.monotonic() + 60
    while len(merged_files(checkpoint)) > 120 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(merged_files(checkpoint)) <= 120
    entries = [path.name for path in (checkpoint / "commits").iterdir()]
    retained = [int(name) for name in entries if name.isdigit()]
    assert len(retained) < 20
    for batch in (min(retained), batches - 1):
        rows = spark.read.format("statestore").option("batchId", batch).load(str(checkpoint))
        counts = {row[0]: row[1] for row in rows.select("key.key", F.col("value.count")).collect()}
        assert counts == dict.fromkeys(range(keys), batch + 1)
