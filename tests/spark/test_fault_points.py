"""kill -9 at every named point of writing state: rows equal an undisturbed run, no needed file is
missing, and once batches have gone on no file of a dead process is left over.

The points are those of fault_points.c. Appends, seals and base images happen where tasks run; the
entry of the commit log and deletes only on the driver, so no executor can be killed there. Under
``local[2]`` the driver is the executor.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from faults import (
    CLUSTER,
    DRIVER,
    LOCAL,
    PARTITIONS,
    WRITES,
    World,
    input_without,
    rows_of,
)

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

# Enough to fill a file and to make a base image due.
BATCHES = 5
# Clean-up comes every tenth batch, and may find nothing to do the first time.
DELETING_BATCHES = 22

# All kills may hit one task, or fetches from the executors they hit may fail one stage.
MANY_KILLS = {
    "spark__deploy__maxExecutorRetries": "-1",
    "spark__task__maxFailures": "20",
    "spark__stage__maxConsecutiveAttempts": "20",
}


@pytest.mark.parametrize(
    "chain",
    [
        ["before-entry", "torn-image", "before-delete", "after-entry"],
        pytest.param(WRITES + DRIVER, marks=[pytest.mark.full, pytest.mark.timeout(1500)]),
    ],
    ids=["some", "all"],
)
def test_driver_killed_at_one_point_after_the_other(
    world: World, spark: SparkSession, chain: Sequence[str]
) -> None:
    for point in chain:
        world.feed(DELETING_BATCHES if "delete" in point else BATCHES)
        world.arm(point)
        job = world.start(LOCAL)
        job.wait_until_stopped_at(point)
        job.kill()
        if world.retained():
            world.needed_files()
    world.settle(world.start("local[1]"), spark)


@pytest.mark.parametrize(
    "chain",
    [
        ["torn-append", "after-append", "after-seal"],
        pytest.param(WRITES, marks=[pytest.mark.full, pytest.mark.timeout(1500)]),
    ],
    ids=["some", "all"],
)
def test_executors_killed_at_one_point_after_the_other(
    world: World, spark: SparkSession, chain: Sequence[str]
) -> None:
    world.feed(BATCHES)
    job = world.start(CLUSTER, **MANY_KILLS)
    for point in chain:
        world.arm(point)
        world.feed(BATCHES)
        victim = job.wait_until_stopped_at(point)
        assert victim in job.executors()
        os.kill(victim, signal.SIGKILL)
    # The query was never restarted.
    world.settle(job, spark)


@pytest.mark.full
def test_executors_killed_while_they_write_what_is_needed_of_a_wasteful_file_again(
    world: World, spark: SparkSession
) -> None:
    # On one executor at a time, so that all partitions write into one file.
    cluster = "local-cluster[1,2,1024]"
    # Only the first input has keys of this partition. From then on its state is one changelog, so
    # nothing but waste in that changelog's file makes a base image due.
    idle = 0
    keys = spark.createDataFrame(rows_of(0)).where(f"pmod(hash(key), {PARTITIONS}) = {idle}")
    world.rows = input_without({row["key"] for row in keys.collect()})
    settings = {
        # Files with room for much that is soon needed no more.
        "spark__sql__streaming__stateStore__holdfast__maxFileBytes": "10000",
        **MANY_KILLS,
    }
    job = world.start(cluster, "--complete", **settings)
    world.feed(BATCHES)
    job.wait_until_processed()
    (changelog,) = world.segments(idle)
    wasteful = changelog.path(world.checkpoint)
    # While the base image is appended; when it is, and neither durable nor known to its store.
    for point in ("torn-image", "after-image"):
        world.arm(point, partition=idle)
        reached = world.control / f"reached.{point}"
        world.go_on_until(job, f"stopped at {point}", reached.exists)
        victim = int(reached.read_text())
        assert victim in job.executors()
        os.kill(victim, signal.SIGKILL)
        job.wait_until_processed()
        assert world.segments(idle) == [changelog], "nothing refers to what was not finished"
    job.kill()
    job = world.start(cluster, "--complete", **settings)
    world.go_on_until(job, "moved out of the file", lambda: not wasteful.exists())
    (image,) = world.segments(idle)
    assert image.path(world.checkpoint) != wasteful
    world.settle(job, spark)


@pytest.mark.full
@pytest.mark.parametrize("point", WRITES)
def test_driver_killed_while_an_executor_writes_and_restarted_with_fewer_executors(
    world: World, spark: SparkSession, point: str
) -> None:
    world.feed(BATCHES)
    world.arm(point)
    job = world.start(CLUSTER)
    assert job.wait_until_stopped_at(point) in job.executors()
    job.kill_driver()
    # The orphaned executor finishes what it was writing, beside the new application.
    world.go(point)
    world.settle(world.start("local-cluster[1,1,1024]"), spark)
