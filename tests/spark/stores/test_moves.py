"""``holdfast adopt``: a query goes on with Holdfast, and gives the rows of an undisturbed run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from harness.process import kill_session
from holdfast.cli import moves
from holdfast.regions.files.paths import any_folder
from support import environment
from support.spark.cases import CASES
from support.spark.faults import World
from support.spark.operator_inputs import events
from support.spark.queries import (
    PROVIDERS,
    STATE,
    Batches,
    drain,
    settings,
    source,
    write_batch,
)

#: Batches with data before the move, and after it.
BEFORE, AFTER = 3, 3

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHANGELOG = {STATE + "rocksdb.changelogCheckpointing.enabled": "true"}
HOLDFAST = {STATE + "providerClass": PROVIDERS["holdfast"], STATE + "checkpointFormatVersion": "2"}

#: Providers of a checkpoint that is adopted: name, format, and other settings.
SOURCES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "rocksdb": ("rocksdb", "1", {}),
    "rocksdb-changelog": ("rocksdb", "1", CHANGELOG),
    "rocksdb-v2": ("rocksdb", "2", {}),
    "rocksdb-changelog-v2": ("rocksdb", "2", CHANGELOG),
    "hdfs": ("hdfs", "1", {}),
}

#: For every run of the tests: a way of keeping state each.
QUICK = {
    ("windows-append", "hdfs"),
    ("join-full-append", "rocksdb-changelog"),
    ("transformWithStateOnJvm-update", "rocksdb-v2"),
}

CELLS = [
    pytest.param(name, of, marks=() if (name, of) in QUICK else pytest.mark.full)
    for name in CASES
    for of in SOURCES
    if of != "hdfs" or not name.startswith("transformWithState")
]


class Query:
    """A query whose provider changes, and the same one on one provider."""

    def __init__(self, spark: SparkSession, name: str, of: str, folder: Path) -> None:
        self.spark, self.case = spark, CASES[name]
        self.folder, self.checkpoint = folder, folder / "checkpoint"
        provider, version, more = SOURCES[of]
        self.old = {
            STATE + "providerClass": PROVIDERS[provider],
            STATE + "checkpointFormatVersion": version,
            **self.case.settings,
            **more,
        }
        self.streams = {one: events(number) for number, one in enumerate(self.case.streams)}
        for one in self.streams:
            (folder / one).mkdir(parents=True)
        self.fed = 0
        self.rows: Batches = {}
        self.undisturbed: Batches = {}

    def feed(self, batches: int) -> None:
        for one, rows in self.streams.items():
            for number in range(self.fed, self.fed + batches):
                write_batch(self.folder / one, number, rows[number])
        self.fed += batches

    def run_old(self, checkpoint: Path, rows: Batches) -> None:
        """Runs the query on its old provider, as one does without Holdfast."""
        manager = self.spark.conf.get(FILE_MANAGER)
        assert manager is not None
        self.spark.conf.unset(FILE_MANAGER)
        try:
            self._run(self.old, checkpoint, rows)
        finally:
            self.spark.conf.set(FILE_MANAGER, manager)

    def run_holdfast(self) -> None:
        self._run({**self.old, **HOLDFAST}, self.checkpoint, self.rows)

    def _run(self, values: Mapping[str, str], checkpoint: Path, rows: Batches) -> None:
        with settings(self.spark, values):
            frames = {one: source(self.spark, self.folder / one) for one in self.streams}
            mode = self.case.mode
            drain(self.case.query(frames), checkpoint=checkpoint, mode=mode, into=rows)

    def begin(self) -> None:
        self.feed(BEFORE)
        self.run_old(self.checkpoint, self.rows)
        # The end of an input may take a batch of its own, so this run stops here, too.
        self.run_old(self.folder / "undisturbed", self.undisturbed)

    def go_on(self) -> None:
        """Runs the rest of the input on Holdfast, and compares with a run that was not moved."""
        last = max(self.rows)
        self.feed(AFTER)
        self.run_holdfast()
        self.run_old(self.folder / "undisturbed", self.undisturbed)
        # The move is a batch, too.
        found = {batch - (batch > last): rows for batch, rows in self.rows.items()}
        assert found == self.undisturbed


def adopt(spark: SparkSession, checkpoint: Path, *, yes: bool = True) -> dict[str, Any]:
    plan = moves.plan_adoption(any_folder(str(checkpoint)))
    assert plan is not None
    return moves.move(spark, plan, yes=yes)


def entries(checkpoint: Path) -> dict[str, bytes]:
    """Files of the checkpoint that are not Holdfast's."""
    return {
        str(path.relative_to(checkpoint)): path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file() and "state/holdfast" not in str(path)
    }


@pytest.mark.versions
@pytest.mark.parametrize(("name", "of"), CELLS)
def test_an_adopted_query_gives_the_rows_of_an_undisturbed_run(
    name: str, of: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, name, of, tmp_path)
    query.begin()
    before = entries(query.checkpoint)
    estimate = adopt(spark, query.checkpoint, yes=False)
    assert entries(query.checkpoint) == before
    assert not (query.checkpoint / "state" / "holdfast").exists()
    moved = adopt(spark, query.checkpoint)
    # Nothing that was there has changed.
    assert entries(query.checkpoint).items() >= before.items()
    assert moves.plan_adoption(any_folder(str(query.checkpoint))) is None
    assert [one["name"] for one in estimate["operators"]] == [
        one["name"] for one in moved["operators"]
    ]
    query.go_on()


class Command:
    """``holdfast adopt`` in a process of its own."""

    def __init__(self, *arguments: object, more: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "holdfast", *map(str, arguments), "--master", "local[2]"]
        self.process = subprocess.Popen(
            command,
            env=environment(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err


def test_the_command_says_what_it_would_do_and_does_it(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    before = entries(query.checkpoint)
    code, out, err = Command("adopt", query.checkpoint).end()
    assert code == 0, err
    assert out.split()[:5] == ["operator", "name", "partitions", "rows", "bytes"]
    assert "nothing was changed" in err
    assert entries(query.checkpoint) == before
    code, out, err = Command("adopt", query.checkpoint, "--yes", "--json").end()
    assert code == 0, err
    moved = json.loads(out)
    assert (moved["batch"], moved["from"], moved["moved"]) == (
        max(query.rows) + 1,
        PROVIDERS["rocksdb"],
        True,
    )
    (operator,) = moved["operators"]
    keys = {row["key"] for batch in query.streams["events"][:BEFORE] for row in batch}
    assert (operator["name"], operator["rows"]) == ("stateStoreSave", len(keys))
    code, out, err = Command("adopt", query.checkpoint, "--yes").end()
    assert (code, out) == (0, "")
    assert "nothing to do" in err
    query.go_on()


def test_a_batch_that_has_begun_must_end_first(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    (query.checkpoint / "commits" / str(max(query.rows))).unlink()
    before = entries(query.checkpoint)
    with pytest.raises(OSError, match=r"has begun and not ended.*availableNow"):
        adopt(spark, query.checkpoint)
    assert entries(query.checkpoint) == before


def test_a_checkpoint_without_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not the checkpoint"):
        moves.plan_adoption(any_folder(str(tmp_path)))
    (tmp_path / "offsets").mkdir()
    with pytest.raises(OSError, match="no state of a committed batch"):
        moves.plan_adoption(any_folder(str(tmp_path)))


def test_a_query_that_goes_on_meanwhile_wins(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    plan = moves.plan_adoption(any_folder(str(query.checkpoint)))
    assert plan is not None
    query.feed(1)
    query.run_old(query.checkpoint, query.rows)
    before = entries(query.checkpoint)
    with pytest.raises(OSError, match="a query has planned batch"):
        moves.move(spark, plan, yes=True)
    assert entries(query.checkpoint) == before


def test_a_query_does_not_start_until_the_adoption_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    plan = moves.plan_adoption(any_folder(str(query.checkpoint)))
    assert plan is not None
    # As a command leaves it that was killed between its two entries.
    (query.checkpoint / "offsets" / str(plan.batch)).write_text(plan.planned)
    before = entries(query.checkpoint)
    with pytest.raises(StreamingQueryException, match=r"holdfast adopt .* again"):
        query.run_holdfast()
    assert entries(query.checkpoint) == before
    adopt(spark, query.checkpoint)
    query.go_on()


#: A task writes state, and the entry of ``commits`` gets its name. That of ``offsets`` has its own
#: in between.
POINTS = [
    pytest.param(point, marks=() if point == "before-entry" else pytest.mark.full)
    for point in ("before-append", "torn-append", "after-append", "before-entry", "after-entry")
]


@pytest.mark.parametrize("point", POINTS)
def test_the_same_command_finishes_one_that_was_killed(
    point: str, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "join-inner-append", "rocksdb", tmp_path)
    query.begin()
    world.arm(point, nth=2 if "append" in point else 1)
    command = Command("adopt", query.checkpoint, "--yes", more=world.environment)
    reached = world.control / f"reached.{point}"
    while not reached.exists():
        assert command.process.poll() is None, command.end()
        try:
            command.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    kill_session(command.process.pid)
    command.end()
    if point != "before-entry" and point != "after-entry":
        # The old query may go on as if nothing had been.
        shutil.copytree(query.checkpoint, tmp_path / "copy")
        query.run_old(tmp_path / "copy", {})
    code, _, err = Command("adopt", query.checkpoint, "--yes").end()
    assert code == 0, err
    assert ("nothing to do" in err) == (point == "after-entry")
    query.go_on()


@pytest.mark.full
def test_of_two_commands_at_once_one_moves_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    commands = [Command("adopt", query.checkpoint, "--yes") for _ in range(2)]
    ended = [command.end() for command in commands]
    assert 0 in [code for code, _, _ in ended], ended
    query.go_on()
