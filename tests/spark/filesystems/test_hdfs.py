"""Checkpoints on a real HDFS: name node and data nodes in a JVM of their own, on loopback."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.spark.branch_job import Running, use_a_branch
from support.spark.faults import ALL_EXECUTORS, CLUSTER, LOCAL, World
from support.spark.java_side import check_conformance
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import EVICTING, STATE, canonical, drain, source, write_batch
from support.spark.remote_folder import RemoteFolder

BATCHES = 5
#: What a key that is not in memory costs at least, where the rows are hardly to be compressed.
BLOCK_BYTES = 8 << 10
#: Two to spare, so that HDFS can replace lost ones in a pipeline of three.
DATA_NODES = 5


@pytest.fixture
def checkpoint(hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path) -> RemoteFolder:
    return RemoteFolder(spark, f"{hdfs.uri}/{tmp_path.name}/checkpoint")


def merged_file(checkpoint: RemoteFolder) -> str:
    (file,) = checkpoint.merged_files()
    return f"{checkpoint.uri}/{file}"


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes settings of the session; undone after the test."""
    before: dict[str, str | None] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def test_the_storage_conformance_suite_passes_on_hdfs(hdfs: MiniHdfs) -> None:
    # A writer that finishes a file asks again so soon whether the block has arrived: one handle for
    # all files finishes one for each append to another.
    again = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms=10"
    check_conformance(hdfs.classpath, f"{hdfs.uri}/conformance", again)


def totals(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        source(spark, folder).groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("s"))
    )


def feed_rows(folder: Path, batches: range) -> None:
    folder.mkdir(exist_ok=True)
    for batch in batches:
        rows = [{"key": i * (batch + 1) % 300, "value": batch * 1000 + i} for i in range(400)]
        write_batch(folder, batch, rows)


@pytest.mark.versions
def test_rows_equal_sparks_own_provider_and_20_partitions_share_a_file(
    spark: SparkSession,
    provider: Callable[[str], None],
    settings: Callable[[str, str], None],
    checkpoint: RemoteFolder,
    tmp_path: Path,
) -> None:
    settings("spark.sql.shuffle.partitions", "20")
    folder = tmp_path / "input"
    runs: dict[str, dict[int, list[tuple[object, ...]]]] = {"hdfs": {}, "holdfast": {}}
    objects = []
    # Restarted in the middle.
    for batches in (range(3), range(3, 6)):
        feed_rows(folder, batches)
        for name, into in runs.items():
            provider(name)
            where = checkpoint.uri if name == "holdfast" else tmp_path / "own"
            drain(totals(spark, folder), checkpoint=where, mode="update", into=into)
        objects.append(checkpoint.merged_files())
    assert sorted(runs["holdfast"]) == list(range(6))
    assert runs["holdfast"] == runs["hdfs"]
    assert len(objects[0]) == 1, "three batches of 20 partitions"
    assert len(objects[1]) <= 2, "the executor may go on with its file"
    state = spark.read.format("statestore").load(checkpoint.uri)
    assert state.count() == len({row[0] for rows in runs["hdfs"].values() for row in rows})


@pytest.mark.full
def test_a_branch_shares_the_files_of_its_parent(
    spark: SparkSession, checkpoint: RemoteFolder, tmp_path: Path
) -> None:
    query = Running(spark, "aggregation-update", tmp_path, checkpoint.uri)
    use_a_branch(query, f"{checkpoint.uri}-branch")


def cache_hits(spark: SparkSession) -> int:
    """Reads of remote state that this JVM's executor answered from its local disk."""
    return int(spark._jvm.io.holdfast.spark.Native.localCache()[1])  # type: ignore[union-attr]


def bytes_read(checkpoint: RemoteFolder) -> int:
    """Bytes that this JVM has read from HDFS so far."""
    statistics = checkpoint.file_system().getAllStatistics()
    return sum(of.getBytesRead() for of in statistics if of.getScheme() == "hdfs")


def test_keys_that_are_not_in_memory_come_from_the_local_disk(
    spark: SparkSession,
    settings: Callable[[str, str], None],
    checkpoint: RemoteFolder,
    tmp_path: Path,
) -> None:
    # Nothing stays in memory between two batches, and every key is read when it is asked for.
    settings("spark.sql.streaming.maxBatchesToRetainInMemory", "0")
    for key, value in EVICTING.items():
        settings(key, value)
    # Hardly to be compressed.
    texts = {key: sha512(key.to_bytes(8)).hexdigest() * 2 for key in range(8000)}
    touched = [range(8000), *(range(first, 8000, 500) for first in range(6))]
    settings(STATE + "holdfast.localCacheBytes", "1g")
    hits, before = cache_hits(spark), bytes_read(checkpoint)
    rows: dict[int, list[tuple[object, ...]]] = {}
    counts = dict.fromkeys(texts, 0)
    cold_reads = 0
    folder = tmp_path / "input"
    folder.mkdir()
    for batch, keys in enumerate(touched):
        write_batch(folder, batch, [{"key": key, "text": texts[key]} for key in keys])
        grouped = source(spark, folder).groupBy("key")
        counted = grouped.agg(F.count("*").alias("n"), F.max("text").alias("text"))
        query = drain(counted, checkpoint=checkpoint.uri, mode="update", into=rows)
        for progress in map(json.loads, (p.json for p in query.recentProgress)):
            (operator,) = progress["stateOperators"]
            cold_reads += operator["customMetrics"]["holdfastColdReads"]
        for key in keys:
            counts[key] += 1
        assert sorted(rows[batch]) == [(key, counts[key], texts[key]) for key in keys]
    # All of it was written by this executor: it has no need to read any of it again.
    assert cache_hits(spark) > hits
    assert cold_reads * BLOCK_BYTES > 4 * (bytes_read(checkpoint) - before)


@pytest.mark.full
def test_files_that_no_retained_batch_needs_are_reclaimed(
    spark: SparkSession,
    settings: Callable[[str, str], None],
    checkpoint: RemoteFolder,
    tmp_path: Path,
) -> None:
    settings("spark.sql.streaming.minBatchesToRetain", "2")
    # Every segment fills a file, so that files stand for segments.
    settings(STATE + "holdfast.maxFileBytes", "1")
    folder = tmp_path / "input"
    batches = 30
    for part in (range(20), range(20, batches)):
        feed_rows(folder, part)
        drain(totals(spark, folder), checkpoint=checkpoint.uri, mode="update", into={})
    # 30 batches of 4 partitions wrote 120 changelogs, one file each, and base images.
    deadline = time.monotonic() + 60
    while len(checkpoint.merged_files()) > 80 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(checkpoint.merged_files()) <= 80
    state = spark.read.format("statestore").load(checkpoint.uri)
    rows = state.agg(F.sum("value.count")).collect()
    assert rows[0][0] == batches * 400


@pytest.mark.full
@pytest.mark.parametrize(
    ("master", "point"),
    [(LOCAL, "task"), (CLUSTER, "publish")],
)
def test_driver_killed_in_the_middle_of_a_batch(
    hdfs_world: World, spark: SparkSession, master: str, point: str
) -> None:
    world = hdfs_world
    world.feed(BATCHES)
    world.arm(point, nth=2)
    job = world.start(master, "--mapper", "pause")
    job.wait_until_stopped_at(point)
    job.kill()
    assert world.last_committed() == 1
    world.settle(world.start(master), spark)


@pytest.mark.full
@pytest.mark.parametrize("point", ["task", "publish"])
def test_executor_killed_in_the_middle_of_a_batch(
    hdfs_world: World, spark: SparkSession, point: str
) -> None:
    world = hdfs_world
    world.feed(BATCHES)
    world.arm(point, nth=2)
    job = world.start(CLUSTER, "--mapper", "pause", **ALL_EXECUTORS)
    job.wait_until_stopped_at(point)
    # Both executors hold committed partitions of batch 2 in open files. What the dead one wrote
    # is on the data nodes.
    os.kill(job.two_executors()[0], signal.SIGKILL)
    world.go(point)
    world.settle(job, spark)


def test_a_data_node_that_stops_in_the_middle_of_a_batch_changes_nothing(
    spark: SparkSession, hdfs: MiniHdfs, checkpoint: RemoteFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    feed_rows(folder, range(4))
    seen: dict[int, list[tuple[object, ...]]] = {}

    def publish(batch: DataFrame, batch_id: int) -> None:
        # The file is open, and three data nodes hold its bytes.
        if batch_id == 1:
            hdfs.stop_data_node_of(merged_file(checkpoint))
        seen[batch_id] = canonical(batch.collect())
        # After the tasks' appends, before the sync that commits/2 waits for.
        if batch_id == 2:
            hdfs.stop_data_node_of(merged_file(checkpoint))

    query = (
        totals(spark, folder)
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint.uri)
        .trigger(availableNow=True)
        .foreachBatch(publish)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == list(range(4))
    # What the remaining data nodes have is enough to go on from.
    feed_rows(folder, range(4, 5))
    drain(totals(spark, folder), checkpoint=checkpoint.uri, mode="update", into=seen)
    last = {row[0]: row[1:] for batch in sorted(seen) for row in seen[batch]}
    whole = spark.read.parquet(str(folder)).groupBy("key")
    wanted = whole.agg(F.count("*"), F.sum("value")).collect()
    assert last == {row[0]: tuple(row[1:]) for row in wanted}
    state = spark.read.format("statestore").load(checkpoint.uri)
    assert state.count() == len(last)
