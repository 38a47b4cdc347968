"""Two applications on one checkpoint: the older one is refused, and harms nothing."""

from __future__ import annotations

import pytest

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
