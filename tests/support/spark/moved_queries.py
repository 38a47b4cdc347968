"""Queries whose checkpoint moves between providers, and the command line that moves it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.process import kill_session
from holdfast.cli import moves, publishing
from holdfast.files.paths import any_folder
from support import environment
from support.spark.cases import CASES
from support.spark.faults import World
from support.spark.gaps import gap_of
from support.spark.operator_cases import Case
from support.spark.operator_inputs import events
from support.spark.queries import (
    PROVIDERS,
    STATE,
    Batches,
    drain,
    settings,
    source,
    unload,
    write_batch,
)

#: Batches with data before the move, and after it.
BEFORE, AFTER = 2, 2
BATCHES = 8

PARTITIONS = 2

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHANGELOG = {STATE + "rocksdb.changelogCheckpointing.enabled": "true"}
HOLDFAST = {STATE + "providerClass": PROVIDERS["holdfast"], STATE + "checkpointFormatVersion": "2"}

ADOPTING = {STATE + "holdfast.adopt": "true"}

#: Providers of a checkpoint that is adopted: name, format, and other settings.
SOURCES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "rocksdb": ("rocksdb", "1", {}),
    "rocksdb-changelog": ("rocksdb", "1", CHANGELOG),
    "rocksdb-v2": ("rocksdb", "2", {}),
    "rocksdb-changelog-v2": ("rocksdb", "2", CHANGELOG),
    "hdfs": ("hdfs", "1", {}),
}


class Query:
    """A query whose provider changes, and the same one on one provider."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        of: str,
        folder: Path,
        *,
        partitions: int = PARTITIONS,
        cases: Mapping[str, Case] = CASES,
    ) -> None:
        if gap := gap_of(name, partitions):
            pytest.skip(gap.reason)
        self.spark, self.case = spark, cases[name]
        self.folder, self.checkpoint = folder, folder / "checkpoint"
        provider, version, more = SOURCES[of]
        self.old = {
            STATE + "providerClass": PROVIDERS[provider],
            STATE + "checkpointFormatVersion": version,
            "spark.sql.shuffle.partitions": str(partitions),
            **self.case.settings,
            **more,
        }
        self.streams = {
            one: events(number, batches=BATCHES) for number, one in enumerate(self.case.streams)
        }
        for one in self.streams:
            (folder / one).mkdir(parents=True)
        self.fed = 0
        self.rows: Batches = {}
        self.undisturbed: Batches = {}
        #: Batches that commands published.
        self.moved: list[int] = []

    def feed(self, batches: int) -> None:
        for one, rows in self.streams.items():
            for number in range(self.fed, self.fed + batches):
                write_batch(self.folder / one, number, rows[number])
        self.fed += batches

    def run_old(
        self, checkpoint: Path | str, rows: Batches, more: Mapping[str, str] | None = None
    ) -> None:
        """Runs the query on Spark's provider, without Holdfast."""
        manager = self.spark.conf.get(FILE_MANAGER)
        assert manager is not None
        self.spark.conf.unset(FILE_MANAGER)
        try:
            self._run({**self.old, **(more or {})}, checkpoint, rows)
        finally:
            unload(self.spark)
            self.spark.conf.set(FILE_MANAGER, manager)

    def run_holdfast(
        self, checkpoint: Path | str | None = None, rows: Batches | None = None
    ) -> None:
        place = checkpoint or self.checkpoint
        self._run({**self.old, **HOLDFAST}, place, self.rows if rows is None else rows)

    def _run(self, values: Mapping[str, str], checkpoint: Path | str, rows: Batches) -> None:
        with settings(self.spark, values):
            frames = {one: source(self.spark, self.folder / one) for one in self.streams}
            mode = self.case.mode
            drain(self.case.query(frames), checkpoint=checkpoint, mode=mode, into=rows)

    def begin(self) -> None:
        self.feed(BEFORE)
        self.run_old(self.checkpoint, self.rows)
        self.run_undisturbed()

    def run_undisturbed(self) -> None:
        """Runs the query without a move. An end of the input may take a batch of its own."""
        self.run_old(self.folder / "undisturbed", self.undisturbed)

    def plan(self, name: str, *facts: Any) -> Any:
        """The batch of a move; None if there is nothing to do."""
        return publishing.plan(self.spark, any_folder(str(self.checkpoint)), name, *facts)

    def move(self, name: str, *facts: Any) -> dict[str, Any]:
        plan = self.plan(name, *facts)
        assert plan is not None
        done = moves.move(self.spark, any_folder(str(self.checkpoint)), plan, yes=True)
        self.moved.append(plan.number())
        return done

    def adopt(self) -> dict[str, Any]:
        return self.move("adoption")

    def go_on(self, on: Callable[[], None] | None = None) -> None:
        """Runs more input, on Holdfast by default, and compares with a run without a move."""
        self.feed(AFTER)
        (on or self.run_holdfast)()
        self.run_undisturbed()
        # A move is a batch, too.
        found = {
            batch - sum(moved < batch for moved in self.moved): rows
            for batch, rows in self.rows.items()
        }
        assert found == self.undisturbed


def entries(checkpoint: Path) -> dict[str, bytes]:
    """Files of the checkpoint that are not Holdfast's."""
    return {
        str(path.relative_to(checkpoint)): path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file() and "state/holdfast" not in str(path)
    }


def write_plan(checkpoint: Path, plan: Any) -> None:
    """Plans the batch of a command, like one killed between its two entries."""
    text = plan.newest().planned(plan.changes())
    (checkpoint / "offsets" / str(plan.number())).write_text(text)


class Command:
    """A command that moves a checkpoint, in a process of its own."""

    def __init__(
        self, *arguments: object, more: Mapping[str, str] | None = None, master: str = "local[2]"
    ) -> None:
        command = [sys.executable, "-m", "holdfast", *map(str, arguments), "--master", master]
        self.process = subprocess.Popen(
            command,
            env=environment(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_stopped_at(self, point: str, world: World) -> None:
        """Waits for the process at a point of fault_points.c."""
        while not (world.control / f"reached.{point}").exists():
            assert self.process.poll() is None, self.end()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.05)

    def kill_at(self, point: str, world: World) -> None:
        """kill -9 of the process at a point."""
        self.wait_until_stopped_at(point, world)
        kill_session(self.process.pid)
        self.end()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err
