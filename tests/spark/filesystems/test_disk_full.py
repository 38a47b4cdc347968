"""A full disk costs an attempt, never a row."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from support.spark.faults import World

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

RETRYING = "local[2,4]"


def test_a_query_goes_on_once_there_is_space_again(world: World, spark: SparkSession) -> None:
    world.feed(10)
    job = world.start(RETRYING)
    for point in ("before-append", "before-image", "before-seal"):
        world.arm(point, "full")
        world.feed(10)
        job.wait_until(point, (world.control / f"claimed.{point}").exists)
    world.feed(10)
    job.finish()
    said = job.text()
    assert "No space left on device" in said
    # The footer that did not fit fails nothing, so the log has to tell.
    assert re.search(r"WARN .*state/holdfast/\S+\.hf was closed without its footer", said)
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
def test_a_batch_without_space_is_not_committed_and_replayed_later(world: World) -> None:
    world.feed(4)
    # Three partitions: the first append of batch 1. Without retries it ends the query.
    world.arm("before-append", "full", nth=4)
    said = world.start("local[2]").wait_until_failed()
    assert "No space left on device" in said
    assert "state/holdfast/" in said
    assert world.retained() == [0]
    world.start("local[2]").finish()
    world.assert_rows()


@pytest.mark.full
@pytest.mark.parametrize("nth", range(1, 7))
def test_no_append_is_special(world: World, nth: int) -> None:
    world.feed(4)
    world.arm("before-append", "full", nth)
    job = world.start(RETRYING)
    job.finish()
    assert (world.control / "claimed.before-append").exists()
    world.assert_rows()
