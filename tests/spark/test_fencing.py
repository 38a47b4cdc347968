"""Two applications on one checkpoint: the older one is refused, and harms nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from faults import LOCAL, World

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)


def test_the_older_application_cannot_commit_once_another_took_over(world: World) -> None:
    world.feed(5)
    world.arm("publish", nth=2)
    older = world.start(LOCAL)
    older.wait_until_stopped_at("publish")
    # Everything of batch 2 is done but its entry in the commit log. Now somebody else restarts the
    # query, and gets equally far.
    world.arm("before-entry")
    newer = world.start(LOCAL)
    newer.wait_until_stopped_at("before-entry")
    world.go("publish")
    said = older.wait_until_failed()
    assert "Another query took over this checkpoint" in said
    assert "this query must be stopped" in said
    assert not world.is_committed(2)
    world.go("before-entry")
    newer.finish()
    world.assert_rows()


def test_on_an_object_store_the_second_to_create_an_entry_fails_and_overwrites_nothing(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(5)
    # The older application has passed every check for batch 2, and its entry is on its way.
    world.arm("before-entry", nth=3)
    older = world.start(LOCAL)
    older.wait_until_stopped_at("before-entry")
    assert world.last_committed() == 1
    newer = world.start(LOCAL)
    newer.wait_until_processed()
    entry = (world.checkpoint / "commits" / "2").read_bytes()
    world.go("before-entry")
    said = older.wait_until_failed()
    assert "Multiple streaming queries are concurrently using" in said
    assert (world.checkpoint / "commits" / "2").read_bytes() == entry
    newer.finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)
