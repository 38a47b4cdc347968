"""State gets another number of partitions, and the query gives the rows that it would give."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from holdfast.cli import repartition as command
from holdfast.cli.java import quick_start
from support import environment
from support.spark.cases import CASES
from support.spark.commands import run_commands
from support.spark.faults import World
from support.spark.gaps import gap_of
from support.spark.mini_hdfs import MiniHdfs
from support.spark.minors import INSTALLED
from support.spark.moved_queries import BEFORE, Command, Query, entries
from support.spark.operator_inputs import BATCHES, events
from support.spark.queries import EVICTING, Batches, drain, run, settings, source, write_batch
from support.spark.repartitions import PARTITIONS, described, repartition, run_on

NUMBERS = (5, 20, 10, 7)
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

#: Clean-up after each batch deletes whatever the newest batches do not need.
RECLAIMING = {"spark.sql.streaming.minBatchesToRetain": "1"}

#: Columns of all types that a key may have, made from a number.
TYPES = {
    "boolean": "n % 2 = 0",
    "byte": "CAST(n AS BYTE)",
    "short": "CAST(n AS SHORT)",
    "int": "CAST(n AS INT)",
    "long": "n",
    "float": "IF(n % 5 = 0, FLOAT('NaN'), CAST(n / 7 AS FLOAT))",
    "double": "CASE n % 5 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN -0D ELSE n / 7D END",
    "small_decimal": "CAST(n AS DECIMAL(10, 2))",
    "large_decimal": "CAST(n AS DECIMAL(38, 10))",
    "string": "IF(n % 5 = 0, NULL, 'key ' || n)",
    "binary": "CAST('key ' || n AS BINARY)",
    "date": "DATE_ADD(DATE '2026-01-01', CAST(n AS INT))",
    "timestamp": "TIMESTAMP_SECONDS(n)",
    "timestamp_ntz": "CAST(TIMESTAMP_SECONDS(n) AS TIMESTAMP_NTZ)",
    "days": "MAKE_DT_INTERVAL(0, 0, CAST(n AS INT))",
    "months": "MAKE_YM_INTERVAL(0, CAST(n AS INT))",
    "struct": "NAMED_STRUCT('a', n, 'b', IF(n % 5 = 0, NULL, 'b' || n))",
    "array": "ARRAY(n, NULL, n + 1)",
    "null": "CAST(NULL AS INT)",
}


def test_keys_of_every_type_are_found_again(spark: SparkSession, tmp_path: Path) -> None:
    def distinct(frames: dict[str, DataFrame]) -> DataFrame:
        numbers = frames["events"].selectExpr("value % 50 AS n")
        typed = numbers.selectExpr(*[f"{text} AS {name}" for name, text in TYPES.items()])
        return typed.dropDuplicates().select("long")

    inputs = {"events": events()}
    whole = run(
        spark,
        inputs=inputs,
        query=distinct,
        mode="append",
        folder=tmp_path / "whole",
        parts=len(NUMBERS),
    )
    found = run_on(
        spark,
        inputs=inputs,
        query=distinct,
        mode="append",
        folder=tmp_path / "divided",
        partitions=NUMBERS,
    )
    assert found == whole


#: One for each way of Spark's operators to make keys, on the older minors.
ON_MINORS = {
    "aggregation-update",
    "dropDuplicatesWithinWatermark-append",
    "flatMapGroupsWithState-event-time-append",
    "join-left-append",
    "sessions-append",
    "transformWithStateInPandas-map-update",
    "transformWithStateOnJvm-update",
}


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.versions] * (name in ON_MINORS)) for name in CASES],
)
def test_rows_are_those_of_a_query_that_kept_its_partitions(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    compare(spark, name, {}, tmp_path)


#: Batches of a join whose state has another form, and of queries whose state is not in memory.
OTHERS = {
    "join-3": ("join-left-append", {JOIN_FORMAT: "3"}),
    "join-4": ("join-left-append", {JOIN_FORMAT: "4"}),
    "cold-windows": ("windows-append", EVICTING),
    "cold-join": ("join-full-append", EVICTING),
    "cold-lists": ("transformWithState-list-update", EVICTING),
}


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_rows_are_the_same_with_state_of_another_form(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    compare(spark, *OTHERS[name], tmp_path)


@pytest.mark.full
def test_an_aggregation_without_a_key_keeps_its_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    def total(frames: dict[str, DataFrame]) -> DataFrame:
        return frames["events"].groupBy().sum("value")

    inputs = {"events": events()}
    folder = tmp_path / "divided"
    whole = run(
        spark, inputs=inputs, query=total, mode="update", folder=tmp_path / "whole", parts=4
    )
    found = run_on(
        spark, inputs=inputs, query=total, mode="update", folder=folder, partitions=NUMBERS
    )
    assert found == whole


def compare(spark: SparkSession, name: str, more: Mapping[str, str], tmp_path: Path) -> None:
    """Compares a query whose partitions change with one that keeps them."""
    if gap := gap_of(name, NUMBERS[0]):
        pytest.skip(gap.reason)
    case = CASES[name]
    inputs = {stream: events(number) for number, stream in enumerate(case.streams)}
    with settings(spark, {**case.settings, **more}):
        whole = run(
            spark,
            inputs=inputs,
            query=case.query,
            mode=case.mode,
            folder=tmp_path / "whole",
            parts=len(NUMBERS),
        )
        found = run_on(
            spark,
            inputs=inputs,
            query=case.query,
            mode=case.mode,
            folder=tmp_path / "divided",
            partitions=NUMBERS,
        )
    assert len(whole) >= BATCHES
    assert found == whole


class KilledError(Exception):
    """In the place of the death of the command: whatever it wrote is there, and nothing else."""


class Dying:
    """A job whose command dies before or behind an entry of a log."""

    def __init__(self, job: Any, point: str) -> None:
        self.job = job
        self.point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)

    def plan(self) -> bool:
        return self._dying("offsets", self.job.plan)

    def commit(self) -> bool:
        return self._dying("commits", self.job.commit)

    def _dying(self, log: str, write: Callable[[], bool]) -> bool:
        if self.point == f"before {log}":
            raise KilledError
        written = write()
        if self.point == f"behind {log}":
            raise KilledError
        return written


@contextmanager
def killed(point: str) -> Iterator[None]:
    """Lets commands die at a point."""
    real = command._job

    @contextmanager
    def job(*arguments: Any) -> Iterator[Dying]:
        with real(*arguments) as found:
            yield Dying(found, point)

    with mock.patch.object(command, "_job", job), pytest.raises(KilledError):
        yield


@pytest.mark.parametrize("way", [(), ("--rewrite",)])
def test_a_command_that_was_killed_anywhere_is_finished_by_the_same_command(
    spark: SparkSession, way: tuple[str, ...], tmp_path: Path
) -> None:
    points = ("before offsets", "behind offsets", "before commits", "behind commits")
    batches = events(batches=len(points) + 1)
    case = CASES["aggregation-update"]
    whole = run(
        spark,
        inputs={"events": batches},
        query=case.query,
        mode=case.mode,
        folder=tmp_path / "whole",
    )
    checkpoint, folder = tmp_path / "checkpoint", tmp_path / "events"
    folder.mkdir()
    found: Batches = {}

    def feed(number: int) -> None:
        write_batch(folder, number, batches[number])
        of_batch: Batches = {}
        frames = {"events": source(spark, folder)}
        drain(case.query(frames), checkpoint=checkpoint, mode=case.mode, into=of_batch)
        found.update({batch - number: rows for batch, rows in of_batch.items()})

    with settings(spark, {PARTITIONS: "5", **RECLAIMING}):
        feed(0)
        for number, (point, partitions) in enumerate(zip(points, (20, 10, 7, 5), strict=True), 1):
            with killed(point):
                repartition(spark, checkpoint, partitions, "--yes", *way)
            if point in ("behind offsets", "before commits"):
                with pytest.raises(StreamingQueryException, match=f"--partitions {partitions} "):
                    drain(
                        case.query({"events": source(spark, folder)}),
                        checkpoint=checkpoint,
                        mode=case.mode,
                        into=found,
                    )
                assert repartition(spark, checkpoint, 6, "--yes", *way) == 1
            assert repartition(spark, checkpoint, partitions, "--yes", *way) == 0
            feed(number)
            assert described(checkpoint) == {partitions}
    assert found == whole


def fed(
    spark: SparkSession, folder: Path, number: int, checkpoint: str | None = None
) -> list[tuple[Any, ...]]:
    """Feeds an aggregation one batch more, and returns its rows."""
    case = CASES["aggregation-update"]
    found: Batches = {}
    events_folder = folder / "events"
    events_folder.mkdir(parents=True, exist_ok=True)
    write_batch(events_folder, number, events()[number])
    frames = {"events": source(spark, events_folder)}
    place = checkpoint or folder / "checkpoint"
    drain(case.query(frames), checkpoint=place, mode=case.mode, into=found)
    (rows,) = found.values()
    return rows


#: Spark 4.1 asks for partitions that a version does not have any more.
FEWER = () if INSTALLED == "4.1" else ((3, 10), (5, 7))


def state(spark: SparkSession, checkpoint: Path, batch: int) -> list[str]:
    read = spark.read.format("statestore").option("batchId", batch).load(str(checkpoint))
    return sorted(str(row) for row in read.select("key", "value").collect())


@pytest.mark.full
@pytest.mark.versions
def test_views_can_be_read_and_verified(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with settings(spark, {PARTITIONS: "5"}):
        fed(spark, tmp_path, 0)
        before = state(spark, checkpoint, 0)
        for batch, partitions in ((1, 20), *FEWER):
            assert repartition(spark, checkpoint, partitions, "--yes") == 0
            assert state(spark, checkpoint, batch) == before
            shown = documents(checkpoint, "verify")["batches"]
            assert all(one["readable_partitions"] == one["partitions"] > 0 for one in shown)
            fed(spark, tmp_path, (batch + 1) // 2)
            before = state(spark, checkpoint, batch + 1)


def documents(checkpoint: Path, name: str, *arguments: str) -> Any:
    """The document that a command in a process of its own prints."""
    line = [sys.executable, "-m", "holdfast", name, str(checkpoint), "--json", *arguments]
    done = subprocess.run(line, env=environment(), check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.full
def test_a_checkpoint_on_hdfs_gets_other_partitions(
    hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = f"{hdfs.uri}/{tmp_path.name}/checkpoint"
    with settings(spark, {PARTITIONS: "5"}):
        found = [fed(spark, tmp_path / "divided", 0, checkpoint)]
        for number, way in enumerate(([], ["--rewrite"]), 1):
            line = ["repartition", checkpoint, "--partitions", str(5 + number), "--yes", *way]
            run_commands({}, {}, line)
            found.append(fed(spark, tmp_path / "divided", number, checkpoint))
    assert found == [fed(spark, tmp_path / "whole", number) for number in range(3)]


@pytest.mark.full
def test_the_command_says_what_it_would_do_and_does_it(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with settings(spark, {PARTITIONS: "5"}):
        fed(spark, tmp_path, 0)
        files = {path: path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()}
        wanted = {
            "operator": 0,
            "name": "stateStoreSave",
            "stores": 1,
            "partitions": 5,
            "new_partitions": 20,
        }
        expected = {
            "batch": 1,
            "partitions": 5,
            "new_partitions": 20,
            "operators": [wanted],
            "rewritten_rows": None,
            "changed": False,
        }
        assert documents(checkpoint, "repartition", "--partitions", "20") == expected
        assert files == {
            path: path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()
        }
        done = documents(checkpoint, "repartition", "--partitions", "20", "--yes")
        assert done == {**expected, "changed": True}
        fed(spark, tmp_path, 1)


@pytest.mark.parametrize("own", [None, "-Xss2m"])
def test_a_quick_start_leaves_options_of_the_user(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "SPARK_SUBMIT_OPTS"
    monkeypatch.delenv(name, raising=False)
    if own:
        monkeypatch.setenv(name, own)
    with quick_start():
        # The last one of two options counts.
        assert os.environ[name].split()[1:] == ([own] if own else [])
    assert os.environ.get(name) == own


def test_what_cannot_be_divided_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with settings(spark, {PARTITIONS: "17"}):
        fed(spark, tmp_path, 0)
    assert repartition(spark, checkpoint, 0) == 2
    assert repartition(spark, checkpoint, 18) == 2
    assert "would have to read 17 of the 17 old ones, and the most is 16" in capsys.readouterr().err
    assert repartition(spark, checkpoint, 18, "--rewrite") == 0
    assert repartition(spark, checkpoint, 17) == 0
    assert "17 partitions already" in capsys.readouterr().err
    assert repartition(spark, checkpoint, 34, "--yes") == 0
    assert repartition(spark, checkpoint, 17) == 1
    assert "no batch since" in capsys.readouterr().err
    assert repartition(spark, checkpoint, 17, "--yes", "--rewrite") == 0
    planned = checkpoint / "offsets" / "3"
    planned.write_text((checkpoint / "offsets" / "0").read_text())
    assert repartition(spark, checkpoint, 34) == 1
    assert "batch 3 of" in capsys.readouterr().err


#: Two operators: Spark describes the state of the second one anew with each change.
DESCRIBED = ("aggregation-update", "transformWithStateOnJvm-update")

KILLED = [
    (name, way, point)
    for way, points in {
        "": (),
        "--rewrite": ("before-append", "torn-append", "after-append"),
    }.items()
    for name in DESCRIBED
    for point in (
        *points,
        *("before-plan", "after-plan", "before-description", "after-description"),
        *("before-entry", "after-entry"),
    )
]


def on_holdfast(spark: SparkSession, name: str, folder: Path) -> Query:
    """A query that has run on Holdfast."""
    query = Query(spark, name, "rocksdb", folder)
    query.feed(BEFORE)
    query.run_holdfast()
    query.run_undisturbed()
    return query


@pytest.mark.full
@pytest.mark.parametrize(("name", "way", "point"), KILLED)
def test_the_same_command_finishes_one_that_was_killed(
    name: str, way: str, point: str, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = on_holdfast(spark, name, tmp_path)
    world.arm(point, nth=2 if "append" in point else 1)
    arguments = ("repartition", query.checkpoint, "--partitions", 4, "--yes", *way.split())
    Command(*arguments, more=world.environment).kill_at(point, world)
    planned = max(query.rows) + 1
    is_new = (query.checkpoint / "commits" / str(planned)).exists()
    if is_new or not (query.checkpoint / "offsets" / str(planned)).exists():
        # The query goes on, on the new partitions or on the old ones.
        copy = tmp_path / "copy"
        shutil.copytree(query.checkpoint, copy)
        if not name.startswith("transformWithState"):
            query.run_holdfast(copy, {})
    else:
        with pytest.raises(StreamingQueryException, match=r"--partitions 4 .* again"):
            query.run_holdfast()
    code, _, err = Command(*arguments).end()
    assert code == 0, err
    assert ("partitions already" in err) == is_new
    assert described(query.checkpoint) == {4}
    query.moved.append(planned)
    query.go_on()


@pytest.mark.full
@pytest.mark.parametrize("way", ["", "--rewrite"])
def test_a_query_that_starts_while_the_command_runs_goes_on(
    way: str, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = on_holdfast(spark, "aggregation-update", tmp_path)
    world.arm("before-plan")
    arguments = ("repartition", query.checkpoint, "--partitions", 4, "--yes", *way.split())
    command = Command(*arguments, more=world.environment)
    command.wait_until_stopped_at("before-plan", world)
    query.go_on()
    # The command has not given its plan a name yet.
    found = entries(query.checkpoint).items()
    before = {name: content for name, content in found if ".tmp" not in name}
    world.go("before-plan")
    code, _, err = command.end()
    assert code == 1
    assert "has planned batch" in err
    assert entries(query.checkpoint) == before
    query.go_on()


@pytest.mark.full
@pytest.mark.parametrize("other", [4, 8])
@pytest.mark.parametrize("way", ["", "--rewrite"])
def test_of_two_commands_at_once_one_changes_the_partitions(
    way: str, other: int, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = on_holdfast(spark, "aggregation-update", tmp_path)
    world.arm("before-plan")
    arguments = ("repartition", query.checkpoint, "--yes", *way.split(), "--partitions")
    first = Command(*arguments, 4, more=world.environment)
    first.wait_until_stopped_at("before-plan", world)
    code, _, err = Command(*arguments, other).end()
    assert code == 0, err
    world.go("before-plan")
    code, _, err = first.end()
    assert code == (0 if other == 4 else 1)
    assert ("another command has committed" if other == 4 else "has planned batch") in err
    assert described(query.checkpoint) == {other}
    query.moved.append(max(query.rows) + 1)
    query.go_on()
