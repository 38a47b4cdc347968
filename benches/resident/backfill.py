"""A first batch that is larger than the memory that state may take, on a fresh checkpoint."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.java import compile_java
from common.limits import memory_limit
from common.report import Result
from common.rounds import Metric, Run, in_rounds
from common.targets import Target

from harness.process import follow
from harness.providers import TITLES
from harness.screen import Screen
from resident.inputs import AllRows, Expected
from resident.measure import Filled
from resident.queries import ALL_QUERIES, BACKFILLS, Query

_HERE = Path(__file__).parent
_SILENCE_S = 1800.0
_KIB = 1024
_MIB = 1 << 20

_PARTITIONS = 4
_HEAP = "1536m"
_TARGET_MIB = 128

#: A short run has fewer rows, and as much less memory.
_PART_OF_QUICK = 20

RIVAL = "rocksdb-changelog"

RESIDENT = Metric(name="resident", title="resident for state, most, of the target", decimals=2)
REPORTED = Metric(name="reported", title="memory after the batch as reported, MiB")
BATCH = Metric(name="batch_s", title="batch time, s", decimals=1)
ALONE = Metric(name="alone_s", title="the same rows without state, s", decimals=1)
CHANGED = Metric(name="changed", title="changed, MiB")
WRITTEN = Metric(name="written", title="written for each changed byte", decimals=2)

METRICS = (BATCH, ALONE, RESIDENT, REPORTED, CHANGED, WRITTEN)

TARGETS = (
    Target(metric=BATCH, at_most=0.6, to=RIVAL),
    Target(metric=RESIDENT, at_most=1.3),
    Target(metric=WRITTEN, at_most=2.5),
)

NOTES = (
    "Resident for state: the kernel's peak of the JVM's resident memory during the batch, without "
    "what has a file\nbehind it and what the JVM tracks (its heap is resident from the start), "
    "less the same of a process that takes\nthe same rows through a shuffle to the sink. RocksDB "
    "has its defaults, which limit nothing. Changed bytes are\nthose of keys and values before "
    "compression, written ones those of all segments in files."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A query, its rows, and the memory that its state may take."""

    query: Query
    folder: Path
    providers: tuple[str, ...]
    rounds: int
    rows: int
    target_mib: int
    batches: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"backfill-{self.query.name}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.query.title}: a first batch of {self.rows:,} rows in each table, "
            f"{_PARTITIONS} partitions, Holdfast's target {self.target_mib} MiB, local[2]\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {_HEAP})"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails.
        WrongStateError
            If a batch puts out other rows than its input asks for, or the state has.
        BuildError
            If the Java part cannot be compiled.
        """
        classes = compile_java(_HERE / "java", into=self.folder / f"{self.title}-classes")
        with screen.runs():
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: self._run(screen, classes, provider, number),
                )
            )
        return Result(
            name=self.title,
            plan={
                "query": self.query.name,
                "providers": self.providers,
                "rounds": self.rounds,
                "partitions": _PARTITIONS,
                "target_mib": self.target_mib,
                "rows": self.rows,
                "driver_memory": _HEAP,
                "batches": self.batches,
            },
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
        )

    def _run(self, screen: Screen, classes: Path, provider: str, round_number: int) -> Run:
        load = os.getloadavg()[0]
        line = screen.run(f"round {round_number + 1}, {TITLES[provider]}", rows=None)
        line.note("without state")
        base = self._batch(classes, provider, AllRows(), without_state=True)
        line.note(f"{self.rows:,} rows")
        found = self._batch(classes, provider, self.query.expected(), without_state=False)
        line.finish(f"{found['batch_ms'] / 1000:,.0f} s")
        for one in (base, found):
            self.batches.append({"provider": provider, "round": round_number, **one})
        kib = found["peak_native_kib"] - base["peak_native_kib"]
        values: dict[str, Sequence[float]] = {
            BATCH.name: [found["batch_ms"] / 1000],
            ALONE.name: [base["batch_ms"] / 1000],
            RESIDENT.name: [kib / _KIB / self.target_mib],
            REPORTED.name: [found["memory_bytes"] / _MIB],
        }
        changed = found["own"].get("holdfastWrittenBytes")
        if changed is not None:
            values[CHANGED.name] = [changed / _MIB]
            values[WRITTEN.name] = [found["own"]["holdfastStoredBytes"] / changed]
        return Run(provider=provider, round_number=round_number, load=load, values=values)

    def _batch(
        self, classes: Path, provider: str, expected: Expected, *, without_state: bool
    ) -> Mapping[str, Any]:
        """Run one batch of new keys on a checkpoint of its own, in a process of its own."""
        folder = self.folder / self.title
        stands = Filled(expected=expected)
        batches: list[Mapping[str, Any]] = []

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "batch":
                stands.take(self.query, provider, fields)
                batches.append(fields)

        limit = memory_limit(provider, self.target_mib) if provider == "holdfast" else {}
        follow(
            [str(_HERE / "child.py")],
            spec={
                "query": self.query.name,
                "provider": provider,
                "partitions": _PARTITIONS,
                "driver_memory": _HEAP,
                "folder": str(folder),
                "settings": {"spark.driver.extraClassPath": str(classes), **limit},
                "fills": False,
                "without_state": without_state,
                "new": True,
                "begun": 0,
                "keys": 0,
                "rows": self.rows,
                "batches": 1,
            },
            log=self.folder / f"{self.title}-{provider}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )
        shutil.rmtree(folder)
        return batches[0]


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each query, by the options of ``benches/run.py``."""
    part = _PART_OF_QUICK if options.quick else 1
    for name, backfill in BACKFILLS.items():
        if options.query in (None, name):
            yield Plan(
                query=ALL_QUERIES[name],
                folder=folder,
                providers=tuple(p for p in options.providers if p in ("holdfast", RIVAL)),
                rounds=options.rounds,
                rows=(options.rows or backfill.rows) // part,
                target_mib=options.target_mib or max(8, _TARGET_MIB // part),
            )
