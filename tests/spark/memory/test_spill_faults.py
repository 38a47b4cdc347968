"""kill -9 and a full disk while a batch that is larger than memory writes its changes as runs, and
between its last run and its commit: rows equal an undisturbed run.

The points are those of fault_points.c. A run is an image there, a commit an append.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.spark.faults import LOCAL
from support.spark.large_state import LargeState
from support.spark.queries import EVICTING

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

#: Each, and which one of a batch: it has more than 20 runs of 1 MiB, and one commit.
POINTS = [("before-image", 3), ("torn-image", 4), ("after-image", 5), ("before-append", 1)]
SOME, ALL = POINTS[-1:], POINTS
FULL_DISKS = [("before-image", 3), ("before-append", 1)]
RETRYING = "local[2,4]"
ONE_EXECUTOR = "local-cluster[1,1,1024]"


@pytest.fixture
def spilling(tmp_path: Path, fault_points: Path) -> Iterator[LargeState]:
    """A world whose batches with all keys have 24 MiB of state, and memory for none of it."""
    world = LargeState(tmp_path / "world", fault_points)
    world.settings |= EVICTING
    try:
        yield world
    finally:
        world.end()


@pytest.mark.parametrize(
    "points",
    [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.full)],
)
def test_driver_killed_while_a_batch_leaves_memory(
    spilling: LargeState, points: list[tuple[str, int]]
) -> None:
    for number, (point, nth) in enumerate(points):
        spilling.feed_all_keys()
        spilling.arm(point, nth=nth)
        job = spilling.start(LOCAL)
        assert job.wait_until_stopped_at(point) in job.drivers()
        assert spilling.last_committed() == number - 1, "the point was in the batch"
        job.kill()
        # Runs of the killed session are garbage: the next process leaves the batch behind it.
        job = spilling.start(LOCAL)
        job.finish()
    spilling.needed_files()
    spilling.assert_rows()


@pytest.mark.full
def test_executors_killed_while_a_batch_leaves_memory(spilling: LargeState) -> None:
    job = spilling.start(ONE_EXECUTOR, spark__deploy__maxExecutorRetries="-1")
    spilling.feed_all_keys()
    job.wait_until_processed()
    for point, nth in POINTS:
        before = spilling.last_committed()
        spilling.arm(point, nth=nth)
        spilling.feed_all_keys()
        victim = job.wait_until_stopped_at(point)
        assert victim in job.executors()
        assert spilling.last_committed() == before, "the point was in the batch"
        os.kill(victim, signal.SIGKILL)
        job.wait_until_processed()
    # The query was never restarted.
    job.finish()
    spilling.needed_files()
    spilling.assert_rows()


@pytest.mark.full
@pytest.mark.parametrize(("point", "nth"), FULL_DISKS)
def test_a_full_disk_costs_an_attempt(spilling: LargeState, point: str, nth: int) -> None:
    spilling.feed_all_keys()
    spilling.arm(point, "full", nth=nth)
    job = spilling.start(RETRYING)
    job.finish()
    assert (spilling.control / f"claimed.{point}").exists()
    assert "No space left on device" in job.text()
    spilling.needed_files()
    spilling.assert_rows()
