"""kill -9 at every named point of writing state: rows equal an undisturbed run, no needed file is
missing, and once batches have gone on no file of a dead process is left over.

The points are those of fault_points.c. Appends, seals and base images happen where tasks run; the
entry of the commit log and deletes only on the driver, so an executor can only be killed while the
driver stands there. Under ``local[2]`` the driver is the executor.

While state comes into memory nothing is written: there the points are reads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.faults import (
    ALL_EXECUTORS,
    CLUSTER,
    DRIVER,
    LOCAL,
    ONE_FILE,
    PARTITIONS,
    WRITES,
    World,
    input_without,
    rows_of,
)
from support.spark.large_state import LargeState
from support.spark.queries import EVICTING

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

# Enough to fill a file and to make a base image due.
BATCHES = 5
# Clean-up comes every tenth batch, and may find nothing to do the first time.
DELETING_BATCHES = 22

ONE_EXECUTOR = "local-cluster[1,2,1024]"
# What all but one partition write in them is soon needed no more.
WASTEFUL_BATCHES = 18

EVERY_POINT = [pytest.mark.full, pytest.mark.timeout(1500)]

# All kills may hit one task, or fetches from the executors they hit may fail one stage.
MANY_KILLS = {
    "spark__deploy__maxExecutorRetries": "-1",
    "spark__task__maxFailures": "20",
    "spark__stage__maxConsecutiveAttempts": "20",
}


@pytest.mark.parametrize(
    ("chain", "settings"),
    [
        pytest.param(["torn-image"], EVICTING, id="one"),
        pytest.param(WRITES + DRIVER, {}, id="all", marks=EVERY_POINT),
        pytest.param(WRITES + DRIVER, EVICTING, id="all-evicting", marks=EVERY_POINT),
    ],
)
def test_driver_killed_at_one_point_after_the_other(
    world: World, spark: SparkSession, chain: Sequence[str], settings: dict[str, str]
) -> None:
    world.settings = settings
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
    ("chain", "settings"),
    [
        pytest.param(["torn-append"], {}, id="one"),
        pytest.param(WRITES, {}, id="all", marks=EVERY_POINT),
        pytest.param(WRITES, EVICTING, id="all-evicting", marks=EVERY_POINT),
    ],
)
def test_executors_killed_at_one_point_after_the_other(
    world: World, spark: SparkSession, chain: Sequence[str], settings: dict[str, str]
) -> None:
    world.settings = settings
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
@pytest.mark.parametrize("point", ["publish", *DRIVER])
def test_an_executor_killed_while_the_driver_stands_at_a_point(
    world: World, spark: SparkSession, point: str
) -> None:
    deletes = "delete" in point
    world.feed(DELETING_BATCHES if deletes else BATCHES)
    # Batch 2: its number, as "publish" wants it, or the third entry.
    world.arm(point, nth={"publish": 2}.get(point, 1 if deletes else 3))
    job = world.start(CLUSTER, **ALL_EXECUTORS, **MANY_KILLS)
    job.wait_until_stopped_at(point)
    victim = job.two_executors()[0]
    os.kill(victim, signal.SIGKILL)
    job.wait_until("an executor gone", lambda: victim not in job.executors())
    assert deletes or world.is_committed(2) == (point == "after-entry")
    world.go(point)
    # The query was never restarted: with "publish", batch 2 refers to files of the dead executor,
    # which the driver has not had made durable yet.
    world.settle(job, spark)


@pytest.fixture
def idle(world: World, spark: SparkSession) -> int:
    """A partition whose state is one changelog in a wasteful file: all its keys are in the first
    input alone, so that nothing but the waste makes a base image due. Its job has ended."""
    partition = 0
    keys = spark.createDataFrame(rows_of(0)).where(f"pmod(hash(key), {PARTITIONS}) = {partition}")
    world.rows = input_without({row["key"] for row in keys.collect()})
    # On one executor, so that all partitions write into one file. No other file will waste as much:
    # the most wasteful ones are emptied, as many as must be.
    job = world.start(ONE_EXECUTOR, "--complete", **ONE_FILE)
    world.feed(WASTEFUL_BATCHES)
    job.wait_until_processed()
    job.kill()
    return partition


@pytest.mark.full
@pytest.mark.parametrize("killed", ["executor", "driver"])
def test_killed_while_an_executor_writes_what_is_needed_of_a_wasteful_file_again(
    world: World, spark: SparkSession, idle: int, killed: str
) -> None:
    (changelog,) = world.segments(idle)
    wasteful = changelog.path(world.checkpoint)
    job = world.start(CLUSTER, "--complete", **MANY_KILLS)
    # While the base image is appended; when it is, and neither durable nor known to its store.
    points = ["torn-image", "after-image"]
    world.arm(points[0], partition=idle)
    for number, point in enumerate(points):
        reached = world.control / f"reached.{point}"
        world.go_on_until(job, f"stopped at {point}", reached.exists)
        executor = int(reached.read_text())
        assert executor in job.executors()
        # All executors know what is wasteful: the next one to have the partition writes at once.
        for following in points[number + 1 :]:
            world.arm(following, partition=idle)
        if killed == "executor":
            os.kill(executor, signal.SIGKILL)
        else:
            job.kill_driver()
        assert world.segments(idle) == [changelog], "nothing refers to what was not finished"
        if killed == "driver":
            # The orphaned executor goes on with its image, beside the new application.
            world.go(point)
            job = world.start(CLUSTER, "--complete", **MANY_KILLS)
    world.go_on_until(job, "moved out of the file", lambda: not wasteful.exists())
    (image,) = world.segments(idle)
    assert image.path(world.checkpoint) != wasteful
    world.settle(job, spark)


@pytest.mark.full
@pytest.mark.parametrize("point", [*WRITES, *DRIVER, "publish"])
def test_driver_of_a_cluster_killed_and_restarted_with_fewer_executors(
    world: World, spark: SparkSession, point: str
) -> None:
    world.feed(DELETING_BATCHES if "delete" in point else BATCHES)
    world.arm(point, nth=2 if point == "publish" else 1)
    job = world.start(CLUSTER)
    stopped = job.wait_until_stopped_at(point)
    assert (stopped in job.executors()) == (point in WRITES)
    job.kill_driver()
    # An orphaned executor finishes what it was writing, beside the new application.
    world.go(point)
    world.settle(world.start("local-cluster[1,1,1024]"), spark)


@pytest.fixture
def large(tmp_path: Path, fault_points: Path) -> Iterator[LargeState]:
    """As ``world``, with state that every next process brings into memory beside its batches."""
    large = LargeState(tmp_path / "world", fault_points)
    try:
        large.build()
        yield large
    finally:
        large.end()


def points_of_hydration(reads: int) -> list[tuple[str, int]]:
    """Points at the begin, in the middle and near the end of so many reads, each with the number of
    the read to stop at."""
    assert 1 < reads // 2 < reads - 2
    return [
        ("before-hydration", 1),
        ("after-hydration", reads // 2),
        # A task that reads a key hydrates as well, which can save the hydrator one of the reads.
        ("before-hydration", reads - 1),
    ]


@pytest.mark.full
def test_executors_killed_while_state_comes_into_memory(large: LargeState) -> None:
    job = large.start(ONE_EXECUTOR, **MANY_KILLS)
    reads = large.reads_of_hydration(job)
    (victim,) = job.executors()
    for point, nth in points_of_hydration(reads):
        # The next executor opens the store again, for the batch that this one had.
        large.arm(point, nth=nth)
        os.kill(victim, signal.SIGKILL)
        large.feed(1)
        killed, victim = victim, job.wait_until_stopped_at(point)
        assert victim != killed
        assert victim in job.executors()
    os.kill(victim, signal.SIGKILL)
    # The query was never restarted.
    large.end_with_all_keys(job)


@pytest.mark.full
def test_driver_killed_while_state_comes_into_memory(large: LargeState) -> None:
    job = large.start(LOCAL)
    reads = large.reads_of_hydration(job)
    job.kill()
    for point, nth in points_of_hydration(reads):
        large.arm(point, nth=nth)
        large.feed(1)
        job = large.start(LOCAL)
        assert job.wait_until_stopped_at(point) in job.drivers()
        job.kill()
        large.needed_files()
    large.end_with_all_keys(large.start(LOCAL))
