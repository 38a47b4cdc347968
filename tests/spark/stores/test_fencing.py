"""Two applications on one checkpoint: the older one is refused, and harms nothing."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.faults import LOCAL, ONLY_BATCHES, World, freeze
from support.spark.log_files import Files
from support.spark.queries import Batches, drain, source, write_batch
from support.spark.state_files import merged_files

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)


def test_the_older_application_cannot_commit_once_another_took_over(
    world: World, spark: SparkSession
) -> None:
    world.feed(5)
    world.arm("publish", nth=2)
    older = world.start(LOCAL)
    older.wait_until_stopped_at("publish")
    # Everything of batch 2 is done but its entry in the commit log. Now another user restarts the
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
    newer.wait_until_processed()
    world.settle(newer, spark)


@pytest.mark.full
def test_an_application_that_gets_another_executor_sees_who_took_over_before(
    world: World,
) -> None:
    world.feed(3)
    world.arm("task", nth=2)
    job = world.start("local-cluster[1,2,1024]", "--mapper", "pause")
    job.wait_until_stopped_at("task")
    # Another application has begun meanwhile. The next executor gets a newer term, by the clock.
    taken = max(int(file.name[:16], 16) for file in merged_files(world.checkpoint)) + 1
    markers = world.checkpoint / "state" / "holdfast" / "driver"
    assert len([*markers.iterdir()]) == 1
    (markers / f"{taken:016x}-00000000.hf").write_bytes(b"")
    (executor,) = job.executors()
    os.kill(executor, signal.SIGKILL)
    world.go("task")
    said = job.wait_until_failed()
    assert f"has files of term {taken:x}, which this application did not give" in said
    assert not world.is_committed(2)


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [
        # Its clean-up begins when it goes on: it must see that another application is there.
        "after-entry",
        # It knows what to delete, and goes on with that.
        "before-delete",
    ],
)
def test_the_older_application_deletes_nothing_that_is_needed_once_another_took_over(
    world: World, spark: SparkSession, point: str
) -> None:
    deletes = point == "before-delete"
    # Batches 9, 19, ... end with a clean-up; the first one may find nothing to do.
    world.feed(22 if deletes else 10)
    world.arm(point, nth=1 if deletes else 10)
    older = world.start(LOCAL)
    older.wait_until_stopped_at(point)
    if deletes:
        # Batches do not wait for a clean-up.
        older.wait_until_processed()
    # So that it is not the first to see the next input.
    (driver,) = older.drivers()
    freeze(driver)
    newer = world.start(LOCAL)
    # The entry that the older one has just written is still there when only one batch came after.
    world.feed(3 if deletes else 1)
    newer.wait_until_processed()
    left = {path.name for path in merged_files(world.checkpoint)}
    terms = {name.partition("-")[0] for name in left}
    assert len(terms) == 2, "files of both are there"
    # The newer one has nothing to do now: whatever is deleted, the older one deletes it.
    if deletes:
        world.arm("after-delete")
    os.kill(driver, signal.SIGCONT)
    world.go(point)
    if deletes:
        older.wait_until_stopped_at("after-delete")
        world.go("after-delete")
    said = older.wait_until_failed()
    assert "Multiple streaming jobs detected" in said
    gone = left - {path.name for path in merged_files(world.checkpoint)}
    if deletes:
        assert gone
    else:
        assert re.search(r"newer than [0-9a-f]+ and .*: another application took over", said)
        assert not gone
    assert not gone & world.needed_files()
    world.settle(newer, spark)


@pytest.mark.full
@pytest.mark.parametrize("object_world", ["s3a", "objects"], indirect=True)
def test_on_an_object_store_the_second_to_create_an_entry_fails_and_overwrites_nothing(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    world.feed(5)
    # The older one has passed every check, and its entry is on its way ...
    world.arm("before-entry", nth=3)
    older = world.start(LOCAL, **ONLY_BATCHES)
    older.wait_until_stopped_at("before-entry")
    # ... when the newer one overtakes it.
    newer = world.start(LOCAL, **ONLY_BATCHES)
    newer.wait_until("batch 2 committed", lambda: world.is_committed(2))
    entry = (world.checkpoint / "commits" / "2").read_bytes()
    world.go("before-entry")
    said = older.wait_until_failed()
    assert "Multiple streaming queries are concurrently using" in said
    assert (world.checkpoint / "commits" / "2").read_bytes() == entry
    newer.finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


def test_a_run_that_begins_behind_another_application_takes_over_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    batches: Batches = {}

    def run(batch: int) -> None:
        write_batch(folder, batch, [{"key": f"k{batch}", "value": batch}])
        counts = source(spark, folder).groupBy("key").count()
        drain(counts, checkpoint=checkpoint, mode="complete", into=batches)
        assert batches[batch] == [(f"k{number}", 1) for number in range(batch + 1)]

    def newest() -> int:
        return max(int(file.name[:16], 16) for file in merged_files(checkpoint))

    run(0)
    (own,) = {int(file.name[:16], 16) for file in merged_files(checkpoint)}
    run(1)
    assert newest() == own, "a manager serves the runs of one application"
    # What another application leaves that ran the query meanwhile, and ended.
    (checkpoint / "state" / "holdfast" / f"{own + 5:016x}-00000001.hf").write_bytes(b"")
    run(2)
    assert newest() > own + 5
    # Terms that no application can have: nothing would be newer.
    taken = newest()
    for stray in (2**63 - 1, 2**64 - 1):
        (checkpoint / "state" / "holdfast" / f"{stray:016x}-00000001.hf").write_bytes(b"")
    run(3)
    run(4)
    assert taken in {int(file.name[:16], 16) for file in merged_files(checkpoint)}


def test_a_driver_that_was_overtaken_before_it_had_a_file_publishes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()
    for number in range(3):
        write_batch(folder, number, [{"key": number}])
    counts = source(spark, folder).groupBy("key").count()
    drain(counts, checkpoint=checkpoint, mode="update", into={})
    commits = Files(spark, (checkpoint / "commits").as_uri())
    entry = (checkpoint / "commits" / "0").read_bytes()
    # Spark deletes old entries, so nothing is in the way of one that comes late.
    commits.delete("0")
    Files(spark, checkpoint.as_uri()).manager.createCheckpointDirectory()
    with pytest.raises(
        Exception, match="Another query took over this checkpoint: it committed bat"
    ):
        commits.write("0", entry)
    assert not commits.exists("0")
