"""Adoptions, moves back and other numbers of partitions, beside Spark's offline repartition."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, WrongStateError, in_rounds
from common.targets import MEASURED, Target

from harness.process import follow
from harness.screen import RunLine, Screen

_CHILD = Path(__file__).with_name("child.py")
_SILENCE_S = 1800.0
_SPARK = "Spark offline"

#: Numbers of partitions, one after the other. Spark's repartition needs another one to copy all.
FIRST = 200
NEXT = (400, 150)
_COPIED_TO = 201

#: Rows of the batches behind a change, all of keys that are there.
_FEW_ROWS = 10_000

SESSION = Metric(name="session_s", title="start of a session, s", decimals=1)
ADOPT = Metric(name="adopt_s", title="adopt (of Spark: 200 to 201 partitions), s", decimals=1)
LEAVE = Metric(name="leave_s", title="leave (the same), s", decimals=1)
ADOPTED_KEYS = Metric(name="adopt_keys", title="adopt, keys/s", more_is_better=True)
LEFT_KEYS = Metric(name="leave_keys", title="leave, keys/s", more_is_better=True)
CHANGE = Metric(name="change_s", title="repartition beyond its session, s", decimals=1)
WRITTEN = Metric(name="written_mib", title="written by it, MiB", decimals=2)
BATCH = Metric(name="batch_s", title="first batch behind it, s", decimals=1)
LATER = Metric(name="later_s", title="a batch before it, s", decimals=1)

COPIES = (SESSION, ADOPT, LEAVE, ADOPTED_KEYS, LEFT_KEYS)
CHANGES = (SESSION, CHANGE, WRITTEN, LATER, BATCH)

COPY_TARGETS = tuple(Target(metric=metric, at_most=1, to=_SPARK) for metric in (ADOPT, LEAVE))
CHANGE_TARGETS = (Target(metric=CHANGE, at_most=5), Target(metric=WRITTEN, at_most=1))

NOTES = (
    "Each step is a process of its own. Times begin when its session has started. Spark reads and "
    "writes state of RocksDB."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Commands on a query that counts rows by key.

    Attributes
    ----------
    copies
        True for adopt and leave, False for repartition.
    """

    folder: Path
    copies: bool
    keys: int
    rounds: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"{'moves' if self.copies else 'repartition'}-{self.keys}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        numbers = " to ".join(map(str, (FIRST, *NEXT)))
        what = "adopt and leave" if self.copies else f"repartition, {numbers} partitions"
        return (
            f"{what}, beside Spark's offline repartition of the same RocksDB state: "
            f"groupBy(key).count(), {self.keys:,} keys, local[2], heap {self.driver_memory}\n"
            f"{self.rounds} rounds in rotated order, each step in a fresh JVM"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a step fails.
        WrongStateError
            If a query has not all of its keys.
        """
        folder = self.folder / self.title
        folder.mkdir()
        with screen.runs():
            made = Query(self, folder / "query", screen.run("state of RocksDB", rows=None))
            made.batch("rocksdb", FIRST, rows=self.keys)
            made.line.finish("made")
            # Sources note paths, so every run has its query at the same one.
            kept = made.folder.rename(folder / "kept")

            def run(provider: str, number: int) -> Run:
                load = os.getloadavg()[0]
                line = screen.run(f"{provider}, round {number + 1}", rows=None)
                shutil.copytree(kept, made.folder)
                query = Query(self, made.folder, line)
                (query.copy if self.copies else query.change)(provider)
                shutil.rmtree(query.folder)
                line.finish("done")
                return Run(provider=provider, round_number=number, load=load, values=query.values)

            runs = list(in_rounds((MEASURED, _SPARK), self.rounds, run))
        return Result(
            name=self.title,
            plan={"keys": self.keys, "driver_memory": self.driver_memory},
            metrics=COPIES if self.copies else CHANGES,
            targets=COPY_TARGETS if self.copies else CHANGE_TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(_SPARK,),
        )


class Query:
    """A query and its checkpoint in a folder, with figures of the steps so far."""

    def __init__(self, plan: Plan, folder: Path, line: RunLine) -> None:
        folder.mkdir(exist_ok=True)
        self.plan, self.folder, self.line = plan, folder, line
        self.checkpoint = folder / "checkpoint"
        self.values: dict[str, list[float]] = {}

    def copy(self, provider: str) -> None:
        """Adopt and leave, or let Spark copy all state once, which both are compared with."""
        if provider == MEASURED:
            adopt_s = self.command("adopt")
            self.batch(MEASURED, FIRST, rows=_FEW_ROWS)
            leave_s = self.command("leave", "--to", "rocksdb")
        else:
            adopt_s = leave_s = self.spark_repartition(_COPIED_TO)
        self.batch("rocksdb", FIRST, rows=_FEW_ROWS)
        for seconds, keys, spent in (
            (ADOPT, ADOPTED_KEYS, adopt_s),
            (LEAVE, LEFT_KEYS, leave_s),
        ):
            self.note(seconds, spent)
            self.note(keys, self.plan.keys / spent)

    def change(self, provider: str) -> None:
        """Change the number of partitions, with batches between."""
        store = MEASURED if provider == MEASURED else "rocksdb"
        if provider == MEASURED:
            self.command("adopt")
        self.note(LATER, self.batch(store, FIRST, rows=_FEW_ROWS))
        for partitions in NEXT:
            before = self._files()
            if provider == MEASURED:
                spent = self.command("repartition", "--partitions", str(partitions))
            else:
                spent = self.spark_repartition(partitions)
            self.note(CHANGE, spent)
            written = self._files().items() - before.items()
            self.note(WRITTEN, sum(size for _, (size, _) in written) / (1 << 20))
            self.note(BATCH, self.batch(store, partitions, rows=_FEW_ROWS))

    def note(self, metric: Metric, value: float) -> None:
        """Keep a figure."""
        self.values.setdefault(metric.name, []).append(value)

    def _files(self) -> Mapping[Path, tuple[int, int]]:
        found = {path: path.stat() for path in self.checkpoint.rglob("*") if path.is_file()}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    def command(self, name: str, *options: str) -> float:
        """Run a command of Holdfast, and return its seconds beyond its session."""
        arguments = [name, str(self.checkpoint), *options, "--yes"]
        return self._step("command", command=arguments)["work"]["s"]

    def spark_repartition(self, partitions: int) -> float:
        """Let Spark do it, and return its seconds beyond its session."""
        return self._step("repartition", provider="rocksdb", partitions=partitions)["work"]["s"]

    def batch(self, provider: str, partitions: int, *, rows: int) -> float:
        """Run one batch, and return its seconds."""
        found = self._step("batch", provider=provider, partitions=partitions, rows=(0, rows))
        keys = found["batch"]["state_rows"]
        if keys != self.plan.keys:
            raise WrongStateError(f"expected {self.plan.keys:,} keys, found {keys:,}")
        return found["batch"]["batch_ms"] / 1000

    def _step(self, step: str, **more: Any) -> Mapping[str, Mapping[str, float]]:
        self.line.note(str(more.get("command", [step])[0]))
        found: dict[str, Mapping[str, float]] = {}
        follow(
            [str(_CHILD)],
            spec={
                "step": step,
                "folder": str(self.folder),
                "driver_memory": self.plan.driver_memory,
                **more,
            },
            log=self.plan.folder / f"{self.plan.title}.log",
            silence_s=_SILENCE_S,
            on_event=lambda kind, fields: found.update({kind: fields}),
        )
        self.note(SESSION, found["session"]["s"])
        return found


def plans(options: argparse.Namespace, folder: Path, *, copies: bool) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        copies=copies,
        keys=options.keys or 100_000,
        rounds=options.rounds,
        driver_memory=options.driver_memory,
    )
