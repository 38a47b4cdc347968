"""Spark's state reader shows the same rows before and after a move of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cli import moves, publishing
from holdfast.files.paths import any_folder
from support.spark.cases import CASES
from support.spark.gaps import gap_of
from support.spark.minors import INSTALLED, is_older_than
from support.spark.operator_inputs import events
from support.spark.queries import PROVIDERS, STATE, canonical, drain, settings, source, write_batch
from support.spark.repartitions import PARTITIONS, repartition

pytestmark = pytest.mark.versions

#: Options that read all of the state that an operator has.
READS: Mapping[str, list[dict[str, Any]]] = {
    "aggregation-update": [{}],
    "windows-append": [{}],
    "dropDuplicates-append": [{}],
    "join-inner-append": [{"joinSide": "left"}, {"joinSide": "right"}],
    "transformWithStateInPandas-map-update": [{"stateVarName": "shelf"}],
    "transformWithStateInPandas-list-append": [{"stateVarName": "values"}],
}

#: The provider that the query begins on, its format, and the one that it leaves to.
FROM = {"rocksdb": ("1", "rocksdb"), "rocksdb-2": ("2", "rocksdb"), "hdfs": ("1", "hdfs")}

CELLS = [
    pytest.param(
        name,
        of,
        marks=() if (name, of) == ("aggregation-update", "rocksdb") else pytest.mark.full,
    )
    for name in READS
    for of in FROM
    if of != "hdfs" or not name.startswith("transformWithState")
]

#: The readers of Spark 4.0 and 4.1 ask for all partitions that there ever were.
NUMBERS = (4,) if is_older_than("4.2") else (4, 2)


class Moved:
    """A query that is fed between moves."""

    def __init__(self, spark: SparkSession, name: str, version: str, folder: Path) -> None:
        self.spark, self.name, self.folder = spark, name, folder
        self.case, self.checkpoint = CASES[name], folder / "checkpoint"
        self.version = version
        self.fed = 0

    def settings_of(self, provider: str) -> dict[str, str]:
        return {
            STATE + "providerClass": PROVIDERS[provider],
            STATE + "checkpointFormatVersion": "2" if provider == "holdfast" else self.version,
        }

    def feed(self, provider: str) -> None:
        for number, stream in enumerate(self.case.streams):
            (self.folder / stream).mkdir(exist_ok=True)
            write_batch(self.folder / stream, self.fed, events(number)[self.fed])
        self.fed += 1
        own = {**self.settings_of(provider), **self.case.settings, PARTITIONS: "2"}
        with settings(self.spark, own):
            frames = {one: source(self.spark, self.folder / one) for one in self.case.streams}
            query = self.case.query(frames)
            drain(query, checkpoint=self.checkpoint, mode=self.case.mode, into={})

    def move(self, name: str, *facts: Any) -> None:
        folder = any_folder(str(self.checkpoint))
        plan = publishing.plan(self.spark, folder, name, *facts)
        assert plan is not None
        moves.move(self.spark, folder, plan, yes=True)

    def rows(self, provider: str = "holdfast") -> list[list[Any]]:
        """All state of the newest batch. Partitions may change."""
        needs_own = provider == "hdfs" or is_older_than("4.2")
        own = self.settings_of(provider) if needs_own else {}
        found = []
        with settings(self.spark, own):
            for options in READS[self.name]:
                read = self.spark.read.format("statestore").options(**options)
                frame = read.load(str(self.checkpoint)).drop("partition_id")
                found.append(canonical(frame.collect()))
        assert all(found)
        return found


@pytest.mark.parametrize(("name", "of"), CELLS)
def test_the_reader_shows_the_same_rows_behind_every_move(
    name: str, of: str, spark: SparkSession, tmp_path: Path
) -> None:
    if gap := gap_of(name, 2):
        pytest.skip(gap.reason)
    version, to = FROM[of]
    if INSTALLED == "4.0" and (to, version) == ("rocksdb", "2"):
        pytest.skip("Spark 4.0 does not read format 2 of its own provider")
    query = Moved(spark, name, version, tmp_path)
    query.feed(to)
    rows = query.rows(to)
    query.move("adoption")
    assert query.rows() == rows
    query.move("undo", False)
    assert query.rows(to) == rows
    query.move("adoption")
    for partitions in NUMBERS:
        query.feed("holdfast")
        rows = query.rows()
        for way in ((), ("--rewrite",)) if partitions == 4 else ((),):
            number = partitions + len(way)
            assert repartition(spark, query.checkpoint, number, "--yes", *way) == 0
            assert query.rows() == rows
    query.feed("holdfast")
    rows = query.rows()
    query.move("leave", to, version)
    assert query.rows(to) == rows
    query.feed(to)
