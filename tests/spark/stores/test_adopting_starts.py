"""With ``adopt=True`` a query adopts its checkpoint when it starts, and gives the rows of an
undisturbed run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.spark.driver_log import log_of
from support.spark.faults import LOCAL, Job, World, states
from support.spark.moved_queries import ADOPTING, BEFORE, SOURCES, Query, entries
from support.spark.queries import PROVIDERS, STATE, settings

ADOPTION = "io.holdfast.spark.moves.Adoption"
#: For every run of the tests: a kind of source each.
QUICK_AT_START = {("join-inner-append", "rocksdb-v2"), ("windows-append", "hdfs")}

CELLS_AT_START = [
    pytest.param(name, of, marks=() if (name, of) in QUICK_AT_START else pytest.mark.full)
    for name in (
        "join-inner-append",
        "windows-append",
        "transformWithState-list-update",
        "transformWithStateOnJvm-update",
    )
    for of in SOURCES
    if of != "hdfs" or not name.startswith("transformWithState")
]


@pytest.mark.versions
@pytest.mark.parametrize(("name", "of"), CELLS_AT_START)
def test_a_query_adopts_its_checkpoint_when_it_starts(
    name: str, of: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, name, of, tmp_path)
    query.begin()
    before = entries(query.checkpoint)
    query.moved.append(max(query.rows) + 1)
    with log_of(spark, ADOPTION, "INFO") as text, settings(spark, ADOPTING):
        query.go_on()
        assert [line.split(":")[0].split(" ")[0] for line in text.toString().splitlines()] == [
            *["Adopting"] * 3,
            "Adopted",
        ]
        assert entries(query.checkpoint).items() >= before.items()
        # Later starts have nothing to adopt.
        text.getBuffer().setLength(0)
        query.go_on()
        assert text.toString() == ""


def test_a_start_that_cannot_adopt_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    for name in (f"{max(query.rows)}", f".{max(query.rows)}.crc"):
        (query.checkpoint / "commits" / name).unlink(missing_ok=True)
    before = entries(query.checkpoint)
    with settings(spark, ADOPTING):
        with pytest.raises(StreamingQueryException, match="has begun and not ended") as error:
            query.run_holdfast()
        assert f"{STATE}providerClass={PROVIDERS['rocksdb']}" in str(error.value)
        assert entries(query.checkpoint) == before
        # The error gives this advice.
        query.run_old(query.checkpoint, query.rows)
        query.moved.append(max(query.rows) + 1)
        query.go_on()


class Drivers:
    """Drivers that start on a checkpoint of RocksDB and may adopt it."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.settings = ADOPTING
        world.feed(BEFORE)
        values = {STATE + "providerClass": PROVIDERS["rocksdb"]}
        old = {key.replace(".", "__"): value for key, value in values.items()}
        world.start(LOCAL, "--complete", **old).finish()
        #: The batch of the adoption.
        self.moved = world.last_committed() + 1
        world.is_without_input(self.moved)
        world.feed(1)

    def start(self) -> Job:
        return self.world.start(LOCAL, "--complete")

    def assert_rows(self) -> None:
        undisturbed = states(self.world.fed)
        batches = [n for n in range(self.world.last_committed() + 1) if n != self.moved]
        outputs = [self.world.output(batch) for batch in batches]
        assert outputs == [undisturbed[self.world.inputs(batch) - 1] for batch in batches]
        assert outputs[-1] == undisturbed[-1]


@pytest.mark.full
@pytest.mark.parametrize("point", ["before-append", "torn-append", "before-entry", "after-entry"])
def test_the_next_start_finishes_an_adoption_that_was_killed(point: str, world: World) -> None:
    drivers = Drivers(world)
    world.arm(point)
    killed = drivers.start()
    killed.wait_until_stopped_at(point)
    killed.kill()
    assert (world.checkpoint / "offsets" / str(drivers.moved)).exists() == ("entry" in point)
    assert world.is_committed(drivers.moved) == (point == "after-entry")
    drivers.start().finish()
    drivers.assert_rows()


@pytest.mark.full
@pytest.mark.parametrize("point", ["before-plan", "before-entry"])
def test_a_driver_that_adopts_goes_on_behind_one_that_was_quicker(point: str, world: World) -> None:
    drivers = Drivers(world)
    world.arm(point)
    slow = drivers.start()
    slow.wait_until_stopped_at(point)
    quick = drivers.start()
    quick.wait_until_processed()
    quick.kill()
    world.feed(1)
    world.go(point)
    slow.finish()
    drivers.assert_rows()
