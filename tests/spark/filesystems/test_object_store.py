"""Checkpoints on an object store: no append, no rename, no overwrite, visible only when closed.

``ObjectsFileSystem`` behaves like one, and S3 is one.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.disks import small_disk
from support.spark.faults import ALL_EXECUTORS, CLUSTER, LOCAL, ONE_FILE, ONLY_BATCHES, World
from support.spark.java_side import check_conformance, classpath
from support.spark.jobs import run_job
from support.spark.object_stores import stand_in
from support.spark.queries import write_batch
from support.spark.state_files import merged_files

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

BATCHES = 5


def names(world: World) -> set[str]:
    """The state objects that can be seen."""
    return {path.name for path in merged_files(world.checkpoint)}


def test_the_storage_conformance_suite_passes(helpers: Path, tmp_path: Path) -> None:
    setting = "fs.objects.impl=ObjectsFileSystem"
    check_conformance(classpath(helpers), f"objects:{tmp_path}", setting)


@pytest.mark.full
def test_the_local_cache_begins_when_state_has_left_memory_and_nothing_stays_of_a_session(
    helpers: Path, tmp_path: Path
) -> None:
    store = stand_in(helpers, tmp_path / "objects")
    folder = tmp_path / "job"
    (folder / "input").mkdir(parents=True)
    for batch in range(2):
        write_batch(folder / "input", batch, [{"key": key} for key in range(1000)])
    arguments = ("--checkpoints", store.uri)
    printed = run_job(
        "spark/cache_job.py",
        *arguments,
        folder=folder,
        settings=store.settings,
        more=store.environment,
    )
    seen = json.loads(printed[-1])
    # Nothing is written to the local disk for as long as all state is in memory anyway.
    assert (seen["before"], seen["local"]) == (0, 0)
    assert seen["after"] > 0
    assert seen["stopped"] == 0
    # The JVM goes on, with nothing of the session.
    assert all(seen["held"].values())
    assert seen["left"] == {"threads": [], "files": []}


@pytest.mark.full
def test_a_local_cache_whose_disk_is_full_is_off_and_says_so_once(
    helpers: Path, tmp_path: Path
) -> None:
    store = stand_in(helpers, tmp_path / "objects")
    folder, disk = tmp_path / "job", tmp_path / "disk"
    folder.mkdir()
    disk.mkdir()
    under = small_disk(disk, "1m")
    arguments = ("--checkpoint", store.uri, "--disk", disk)
    printed = run_job(
        "spark/full_cache_job.py",
        *arguments,
        folder=folder,
        settings=store.settings,
        more=store.environment,
        under=under,
    )
    seen = json.loads(printed[-1])
    assert seen["before"] > 1 << 20
    assert seen["after"] == 0
    newest = pq.read_table(folder / "input" / "batch-00002.parquet").to_pylist()
    assert sorted(map(tuple, seen["rows"])) == sorted((r["key"], r["value"]) for r in newest)
    warnings = [line for line in (folder / "log").read_text().splitlines() if "local cache" in line]
    assert len(warnings) == 1
    assert f"writing to the local cache in {disk}: No space left on device" in warnings[0]


@pytest.mark.parametrize(
    "object_world",
    [
        pytest.param("objects", marks=pytest.mark.full),
        pytest.param("s3a", marks=pytest.mark.versions),
    ],
    indirect=True,
)
def test_an_executor_seals_one_object_per_batch_and_a_killed_driver_leaves_nothing_half_done(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(BATCHES)
    world.arm("publish", nth=2)
    job = world.start(LOCAL, **ONLY_BATCHES)
    job.wait_until_stopped_at("publish")
    # All tasks of batch 2 have ended, and nothing of what they wrote can be seen.
    assert len(merged_files(world.checkpoint)) == 2
    job.kill()
    assert world.last_committed() == 1
    world.start(LOCAL, **ONLY_BATCHES).finish()
    world.assert_rows()
    assert len(merged_files(world.checkpoint)) == BATCHES
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
def test_each_of_two_executors_seals_one_object_per_batch_and_none_before_the_commit_hook(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(1)
    world.arm("publish", nth=0)
    job = world.start(CLUSTER, **ONLY_BATCHES, **ALL_EXECUTORS)
    objects: set[str] = set()
    writers = []
    for batch in range(BATCHES):
        if batch > 0:
            world.arm("publish", nth=batch)
            world.feed(1)
        job.wait_until_stopped_at("publish")
        # All tasks of this batch have ended, and the driver has not begun to commit it.
        assert names(world) == objects
        world.go("publish")
        job.wait_until_processed()
        # A file name begins with the term of its executor.
        terms = [name.partition("-")[0] for name in names(world) - objects]
        assert 1 <= len(terms) <= 2
        assert len(set(terms)) == len(terms), "two objects of one executor"
        writers.append(set(terms))
        objects = names(world)
    assert len(set.union(*writers)) == 2
    assert any(len(terms) == 2 for terms in writers), "no batch was written by both executors"
    job.finish()
    assert names(world) == objects, "an executor's end leaves no further object"
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
def test_objects_that_a_killed_driver_left_are_reclaimed(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(BATCHES)
    world.arm("after-object", nth=4)
    job = world.start(LOCAL, **ONE_FILE)
    # The object of batch 3 is there, and the driver has not heard of it.
    job.wait_until_stopped_at("after-object")
    job.kill()
    # On S3 it is the server that stopped; its answer reaches no client.
    world.go("after-object")
    assert world.last_committed() == 2
    left = names(world) - world.needed_files()
    assert left, "there is something to reclaim"
    job = world.start(LOCAL, **ONE_FILE)
    world.go_on_until_reclaimed(job, left)
    job.finish()
    assert not left & names(world)
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
@pytest.mark.parametrize("object_world", ["objects", "s3a"], indirect=True)
def test_an_executor_lost_before_it_seals_fails_the_batch_and_a_restart_replays_it(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(BATCHES)
    world.arm("publish", nth=2)
    job = world.start(CLUSTER, **ONE_FILE, **ALL_EXECUTORS)
    job.wait_until_stopped_at("publish")
    before = set(merged_files(world.checkpoint))
    # Both executors hold partitions of batch 2 that they have not sealed; one of them dies.
    os.kill(job.two_executors()[0], signal.SIGKILL)
    world.go("publish")
    said = job.wait_until_failed()
    assert re.search(
        r"The batch was not committed: physical files in (objects|s3a):/.*/state/holdfast"
        r" could not be made durable: [0-9a-f-]+\.hf up to offset \d+"
        r" \((its executor|executor \d) was lost before the file was complete",
        said,
    )
    assert "restart the query, and Spark replays the batch" in said
    assert not world.is_committed(2)
    # The other executor may have sealed its part before the batch failed, and a base image. Nothing
    # is there of the one that died: a file name begins with the term of its executor.
    new = {path.name.partition("-")[0] for path in set(merged_files(world.checkpoint)) - before}
    assert len(new) <= 1
    world.start(CLUSTER, **ONE_FILE).finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)
