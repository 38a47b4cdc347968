"""Moves of a query that writes with Spark's file sink, whose own log counts the query's batches."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from support import commands
from support.spark.faults import World
from support.spark.moved_queries import ADOPTING, FILE_MANAGER, HOLDFAST, Command
from support.spark.queries import PROVIDERS, STATE, settings, source, unload, write_batch
from support.spark.repartitions import commands_in

INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"

OLD = {STATE + "providerClass": PROVIDERS["rocksdb"], STATE + "checkpointFormatVersion": "1"}

#: Enough batches for two compactions of the log.
MORE = 21


class Written:
    """A query whose output is files."""

    def __init__(self, spark: SparkSession, folder: Path, interval: str = "10") -> None:
        self.spark, self.folder = spark, folder
        self.checkpoint, self.output = folder / "checkpoint", folder / "output"
        self.more = {INTERVAL: interval, "spark.sql.shuffle.partitions": "2"}
        self.fed = 0
        (folder / "input").mkdir(parents=True)

    @property
    def log(self) -> set[str]:
        folder = self.output / "_spark_metadata"
        return {file.name for file in folder.iterdir() if not file.name.startswith(".")}

    def on_holdfast(self, batches: int, more: Mapping[str, str] | None = None) -> None:
        self._run({**HOLDFAST, **(more or {})}, batches)

    def on_old(self, batches: int) -> None:
        manager = self.spark.conf.get(FILE_MANAGER)
        assert manager is not None
        self.spark.conf.unset(FILE_MANAGER)
        try:
            self._run(OLD, batches)
        finally:
            unload(self.spark)
            self.spark.conf.set(FILE_MANAGER, manager)

    def _run(self, values: Mapping[str, str], batches: int) -> None:
        """Runs so many batches, and reads all of the output."""
        for _ in range(batches):
            write_batch(self.folder / "input", self.fed, [{"key": self.fed}])
            self.fed += 1
        with settings(self.spark, {**self.more, **values}):
            rows = source(self.spark, self.folder / "input").dropDuplicates(["key"])
            query = (
                rows.writeStream.option("checkpointLocation", str(self.checkpoint))
                .trigger(availableNow=True)
                .start(str(self.output))
            )
            query.awaitTermination()
            self.assert_rows()

    def assert_rows(self) -> None:
        found = self.spark.read.parquet(str(self.output)).collect()
        assert sorted(row["key"] for row in found) == list(range(self.fed))


@pytest.fixture
def same_session(spark: SparkSession) -> Iterator[SparkSession]:
    with commands_in(spark):
        yield spark


#: Command, the batches before it, and the interval of the log. Batches 9 and 5 are compactions.
MOVES = [
    ("adopt", 9, "10"),
    ("repartition", 9, "10"),
    ("leave", 9, "10"),
    ("undo", 8, "10"),
    *(
        pytest.param(*one, marks=pytest.mark.full)
        for one in [
            ("adopt", 4, "10"),
            ("adopt", 2, "3"),
            ("adopt", 12, "7"),
            ("leave", 5, "3"),
            ("undo", 9, "10"),
        ]
    ),
]
#: How a query is moved that tells its sink by itself, the batches before it, and the interval.
OWN = [("adopt", 9, "10"), ("repartition", 2, "3"), ("at-start", 4, "10")]


@pytest.mark.versions
@pytest.mark.parametrize(("command", "before", "interval"), MOVES)
def test_files_are_read_and_the_query_goes_on_behind_a_move(
    command: str,
    before: int,
    interval: str,
    same_session: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    query = Written(same_session, tmp_path, interval)
    options = {"leave": ["--to", "rocksdb"], "repartition": ["--partitions", 4]}.get(command, [])
    output = ["--output", query.output]
    if command in ("adopt", "undo"):
        query.on_old(before)
    else:
        query.on_holdfast(before)
    if command == "undo":
        assert commands.run(capsys, "adopt", query.checkpoint, *output, "--yes")[0] == 0
    was = query.log
    code, _, err = commands.run(capsys, command, query.checkpoint, *options, *output)
    assert code == 0, err
    assert query.log == was
    code, _, err = commands.run(capsys, command, query.checkpoint, *options, *output, "--yes")
    assert code == 0, err
    assert len(query.log - was) == 1
    query.assert_rows()
    if command == "repartition":
        query.more["spark.sql.shuffle.partitions"] = "4"
    (query.on_holdfast if command in ("adopt", "repartition") else query.on_old)(MORE)


@pytest.mark.parametrize(
    ("way", "before", "interval"),
    [
        pytest.param(*one, marks=() if one in OWN else pytest.mark.full)
        for one in itertools.product(("adopt", "repartition", "at-start"), (9, 2, 4), ("10", "3"))
    ],
)
def test_a_query_on_holdfast_tells_its_sink_of_a_move(
    way: str,
    before: int,
    interval: str,
    same_session: SparkSession,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    query = Written(same_session, tmp_path, interval)
    (query.on_holdfast if way == "repartition" else query.on_old)(before)
    if way != "at-start":
        options = ["--partitions", 4] if way == "repartition" else []
        _, _, err = commands.run(capsys, way, query.checkpoint, *options)
        assert f"the query adds batch {before} to their log when it starts" in err
        code, _, err = commands.run(capsys, way, query.checkpoint, *options, "--yes")
        assert code == 0, err
        if options:
            query.more["spark.sql.shuffle.partitions"] = "4"
    query.on_holdfast(MORE, ADOPTING if way == "at-start" else {})
    assert f"{before}" in query.log or f"{before}.compact" in query.log


@pytest.mark.parametrize("command", ["leave", "undo"])
def test_a_command_can_be_told_of_the_output_later(
    command: str, same_session: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = Written(same_session, tmp_path)
    options = ["--to", "rocksdb"] if command == "leave" else []
    query.on_old(3)
    assert commands.run(capsys, "adopt", query.checkpoint, "--yes")[0] == 0
    if command == "leave":
        query.on_holdfast(1)
    _, _, err = commands.run(capsys, command, query.checkpoint, *options)
    assert "give this command --output FOLDER, now or later" in err
    assert commands.run(capsys, command, query.checkpoint, *options, "--yes")[0] == 0
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        query.on_old(1)
    told = [command, query.checkpoint, *options, "--output", query.output]
    was = query.log
    code, out, err = commands.run(capsys, *told, "--json")
    assert (code, json.loads("".join(out))["moved"]) == (0, False), err
    lacking = {"leave": 1, "undo": 2}[command]
    assert f"lacks {lacking} entries of moves: add --yes" in err
    assert query.log == was
    _, _, err = commands.run(capsys, *told, "--yes")
    assert f"has got {lacking} entries" in err
    query.on_old(MORE)


def test_another_output_is_refused(
    same_session: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = Written(same_session, tmp_path / "one")
    query.on_old(4)
    log = query.output / "_spark_metadata"

    def refused() -> str:
        before = sorted(path.name for path in query.checkpoint.rglob("*"))
        for yes in ([], ["--yes"]):
            arguments = ["adopt", query.checkpoint, "--output", query.output, *yes]
            code, _, err = commands.run(capsys, *arguments)
            assert code == 1, err
        assert sorted(path.name for path in query.checkpoint.rglob("*")) == before
        return err

    shutil.copy(log / "3", log / "4")
    assert "ends at batch 4, and the query at batch 3" in refused()
    (log / "4").unlink()
    (log / "2").unlink()
    assert "lacks the entry of batch 2" in refused()
    query.output = tmp_path
    assert "Spark's file sink did not write there" in refused()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("before-plan", marks=pytest.mark.full),
        "before-entry",
        pytest.param("after-entry", marks=pytest.mark.full),
    ],
)
def test_the_same_command_finishes_one_that_was_killed(
    point: str, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = Written(spark, tmp_path)
    query.on_old(9)
    arguments = ("adopt", query.checkpoint, "--output", query.output, "--yes")
    world.arm(point)
    Command(*arguments, more=world.environment).kill_at(point, world)
    if point == "before-plan":
        # Batch 9 still belongs to the old query.
        query.on_old(1)
    code, _, err = Command(*arguments).end()
    assert code == 0, err
    query.on_holdfast(MORE)
