"""Resident memory of queries whose state is ten times the memory that it may take."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.limits import LIMITED, memory_limit
from common.report import Result
from common.rounds import Metric, Run, WrongStateError, in_rounds
from common.targets import Target

from harness.process import follow
from harness.providers import TITLES
from harness.screen import Screen
from holdfast._options import STORE
from resident.inputs import Emitted, Expected, Request
from resident.queries import QUERIES, Query

_HERE = Path(__file__).parent
_SILENCE_S = 900.0
_KIB = 1024
_MIB = 1 << 20

_STATE_PER_TARGET = 10
#: The least that is a default, and what a short run fills in time.
_TARGET_MIB, _QUICK_TARGET_MIB = 128, 16

#: Rows of a batch for each MiB of the target: 30 batches touch more than the target has room for.
_ROWS_PER_MIB = 300

#: Rows of a batch for one of a query with little state.
_ROWS_PER_FEW = 8

#: All state stays in memory while it is made, with room for another key.
_ROOM_OF_FILL = 2 * _STATE_PER_TARGET

#: Batches at the beginning of a run: the first opens all stores, and what that leaves is resident
#: when the second begins.
_FIRST = 2

_MAINTENANCE = "5s"
_MAINTENANCE_OF_FILL = "2s"

#: Small batches after those that fill the state: at most, where it shows when all of it is in runs.
_SETTLING_SEEN = 60
_SETTLING = 12

STATE = Metric(name="state", title="state when all is in memory, of the target", decimals=1)
REPORTED = Metric(name="reported", title="memory as reported, most, of the target", decimals=2)
RESIDENT = Metric(name="resident", title="resident for state, most, of the target", decimals=2)
LATER = Metric(name="resident_later", title="the same after the first two batches", decimals=2)
BEYOND = Metric(name="beyond", title="the same beyond the most with little state", decimals=2)
ALONE = Metric(name="alone", title="the same of a process with little state", decimals=2)
TRIMMED = Metric(name="trimmed", title="the same in the end, without what malloc keeps", decimals=2)
BATCH = Metric(name="batch_ms", title="batch time, ms")
READS = Metric(name="reads", title="reads of runs per batch")

METRICS = (STATE, REPORTED, RESIDENT, LATER, BEYOND, ALONE, TRIMMED, BATCH, READS)

TARGETS = (Target(metric=REPORTED, at_most=1.15), Target(metric=RESIDENT, at_most=1.15))

NOTES = (
    "Resident for state: the kernel's peak of the JVM's resident memory between two looks, without "
    "what has a file\nbehind it and without what the JVM itself tracks (its heap is resident from "
    "the start), less the same of a\nprocess whose batches have an eighth of the rows and few "
    "keys: the median over its batches, less what it reports.\nMerges are in it, what malloc "
    "keeps, and what the JVM took and gave back between two looks, such as its compilers: so the "
    "most with little\nstate is above its median, too. Python workers are not. The result file has "
    "all of it batch by batch."
)


@dataclass(kw_only=True)
class Filled:
    """How the checkpoint of a provider stands.

    Attributes
    ----------
    keys, batches
        Keys that were put, and batches that ran.
    memory_bytes
        Reported memory of the state after the last batch of new keys alone.
    """

    expected: Expected
    keys: int = 0
    batches: int = 0
    memory_bytes: int = 0

    def take(self, query: Query, provider: str, fields: Mapping[str, Any]) -> None:
        """Take in a batch that ran.

        Raises
        ------
        WrongStateError
            If it put out other rows than it had to, or the state has another number of keys.
        """
        request = Request(**fields["request"])
        wanted = self.expected.after(request.batch(len(query.tables)))
        expected = (wanted, self.expected.state_rows())
        found = (Emitted(**fields["emitted"]), fields["state_rows"])
        if found != expected:
            raise WrongStateError(
                f"{query.name} on {provider}, batch {request.index}: expected {expected[0]} and "
                f"{expected[1]:,} rows in the state, found {found[0]} and {found[1]:,}"
            )
        self.keys, self.batches = request.keys_after, request.index + 1
        if request.new:
            self.memory_bytes = fields["memory_bytes"]


@dataclass(kw_only=True)
class Seen:
    """The report of a process: batches, and the memory after malloc gave back what it could."""

    batches: list[Mapping[str, Any]] = field(default_factory=list)
    trimmed_kib: int = 0


@dataclass(frozen=True, kw_only=True)
class Base:
    """Resident memory that the JVM does not track, beside little state.

    Attributes
    ----------
    median_kib
        After a batch.
    peak_kib
        The most in a batch after the first ones.
    """

    median_kib: float
    peak_kib: float

    @classmethod
    def of(cls, batches: Sequence[Mapping[str, Any]]) -> Base:
        """Take what the batches of a process had beside what they report as state."""

        def beside(name: str) -> list[float]:
            return [batch[name] - batch["memory_bytes"] / _KIB for batch in batches]

        return cls(
            median_kib=statistics.median(beside("native_kib")),
            peak_kib=max(beside("peak_native_kib")[_FIRST:]),
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a query is measured.

    Attributes
    ----------
    target_mib
        Holdfast's target, the whole of RocksDB's caches and write buffers.
    rows
        Rows of a batch, of all tables together.
    batches
        Batches of a run.
    filled, bases
        How each provider stands; the memory of the JVM without state there.
    """

    query: Query
    folder: Path
    providers: tuple[str, ...]
    rounds: int
    partitions: int
    target_mib: int
    rows: int
    batches: int
    driver_memory: str
    filled: dict[str, Filled] = field(default_factory=dict)
    bases: dict[str, Base] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"resident-{self.query.name}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.query.title}: {self.partitions} partitions, state of {_STATE_PER_TARGET} times "
            f"{self.target_mib} MiB, which are the memory that it may take; {self.batches} batches "
            f"of {self.rows:,} rows over all keys, a tenth of them new, maintenance every "
            f"{_MAINTENANCE}, local[2]\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {self.driver_memory}) that goes on from the checkpoint of the one "
            "before"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails.
        WrongStateError
            If a batch puts out other rows than its input asks for, or the state has.
        """
        curves: list[dict[str, Any]] = []
        with screen.runs():
            # Holdfast goes first: its result decides how many keys the others get.
            for provider in dict.fromkeys(("holdfast", *self.providers)):
                self._fill(screen, provider)
            for provider in self.providers:
                self._take_base(screen, provider)
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: self._run(screen, provider, number, curves),
                )
            )
        shutil.rmtree(self._home)
        return Result(
            name=self.title,
            plan=self._to_json(curves),
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
        )

    @property
    def state_bytes(self) -> int:
        """The least memory that the state is to take."""
        return _STATE_PER_TARGET * self.target_mib * _MIB

    def _to_json(self, curves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "query": self.query.name,
            "providers": self.providers,
            "rounds": self.rounds,
            "partitions": self.partitions,
            "target_mib": self.target_mib,
            "rows": self.rows,
            "batches": self.batches,
            "driver_memory": self.driver_memory,
            "keys": {provider: stands.keys for provider, stands in self.filled.items()},
            "without_state_kib": {name: asdict(base) for name, base in self.bases.items()},
            "curves": curves,
        }

    @property
    def _home(self) -> Path:
        return self.folder / self.title

    def _fill(self, screen: Screen, provider: str) -> None:
        known = self.filled.get("holdfast")
        self.filled[provider] = Filled(expected=self.query.expected())
        spec = {
            "fills": True,
            "rows": self.query.fill_keys,
            "state_bytes": self.state_bytes,
            "fill_keys": known.keys if known else None,
            "settling": _SETTLING_SEEN if provider == "holdfast" else _SETTLING,
        }
        settings = {
            # From the beginning, so that commits note what a restart with a target needs.
            **memory_limit(provider, self.target_mib * _ROOM_OF_FILL),
            f"{STORE}.maintenanceInterval": _MAINTENANCE_OF_FILL,
            f"{STORE}.minDeltasForSnapshot": "1",
        }
        stands = self.filled[provider]
        self._follow(screen, "fill", provider, stands, self._home / provider, spec, settings)

    def _take_base(self, screen: Screen, provider: str) -> None:
        # A JVM that has work to do touches more of what it took for itself.
        rows = self.rows // _ROWS_PER_FEW
        # The number of keys stays: with fewer keys a join has too many pairs.
        stands = Filled(expected=self.query.expected(), keys=rows)
        title, folder = "little state", self._home / f"{provider}-base"
        seen = self._watch(screen, title, provider, stands, folder, rows=rows)
        self.bases[provider] = Base.of(seen.batches)

    def _run(
        self, screen: Screen, provider: str, round_number: int, curves: list[dict[str, Any]]
    ) -> Run:
        load = os.getloadavg()[0]
        stands = self.filled[provider]
        title, folder = f"round {round_number + 1}", self._home / provider
        seen = self._watch(screen, title, provider, stands, folder, rows=self.rows)
        curves.append(
            {
                "provider": provider,
                "round": round_number,
                "batches": seen.batches,
                "trimmed_native_kib": seen.trimmed_kib,
            }
        )
        return Run(
            provider=provider,
            round_number=round_number,
            load=load,
            values=figures(
                seen,
                base=self.bases[provider],
                target_kib=self.target_mib * _KIB,
                state_bytes=self.filled["holdfast"].memory_bytes,
            ),
        )

    def _watch(
        self,
        screen: Screen,
        title: str,
        provider: str,
        stands: Filled,
        folder: Path,
        *,
        rows: int,
    ) -> Seen:
        spec = {
            "fills": False,
            "new": False,
            "begun": stands.batches,
            "keys": stands.keys,
            "rows": rows // len(self.query.tables),
            "batches": self.batches,
        }
        settings = {
            **memory_limit(provider, self.target_mib),
            f"{STORE}.maintenanceInterval": _MAINTENANCE,
        }
        return self._follow(screen, title, provider, stands, folder, spec, settings)

    def _follow(
        self,
        screen: Screen,
        title: str,
        provider: str,
        stands: Filled,
        folder: Path,
        spec: Mapping[str, Any],
        settings: Mapping[str, str],
    ) -> Seen:
        line = screen.run(f"{title}, {TITLES[provider]}", rows=None)
        seen = Seen()

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "batch":
                stands.take(self.query, provider, fields)
                seen.batches.append(fields)
                memory_mib = fields["memory_bytes"] / _MIB
                line.note(f"batch {fields['batch_id']}: {memory_mib:,.0f} MiB as reported")
            elif kind == "trimmed":
                seen.trimmed_kib = fields["native_kib"]

        follow(
            [str(_HERE / "child.py")],
            spec={
                "query": self.query.name,
                "provider": provider,
                "partitions": self.partitions,
                "driver_memory": self.driver_memory,
                "folder": str(folder),
                "settings": settings,
                **spec,
            },
            log=self.folder / f"{self.title}-{provider}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )
        line.finish("done")
        return seen


def figures(
    seen: Seen, *, base: Base, target_kib: int, state_bytes: int
) -> Mapping[str, Sequence[float]]:
    """Return the figures of a run.

    Parameters
    ----------
    base
        Without state.
    state_bytes
        Memory of all of the state.
    """

    def of_target(kib: float) -> float:
        return (kib - base.median_kib) / target_kib

    reported = max(batch["memory_bytes"] for batch in seen.batches)
    resident = [of_target(batch["peak_native_kib"]) for batch in seen.batches]
    found: dict[str, Sequence[float]] = {
        STATE.name: [state_bytes / _KIB / target_kib],
        REPORTED.name: [reported / _KIB / target_kib],
        RESIDENT.name: [max(resident)],
        LATER.name: [max(resident[_FIRST:])],
        BEYOND.name: [max(resident[_FIRST:]) - of_target(base.peak_kib)],
        ALONE.name: [of_target(base.peak_kib)],
        TRIMMED.name: [of_target(seen.trimmed_kib)],
        BATCH.name: [batch["batch_ms"] for batch in seen.batches],
    }
    reads = [batch["own"].get("holdfastColdReads") for batch in seen.batches]
    if None not in reads:
        found[READS.name] = reads
    return found


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each operator, by the options of ``benches/run.py``."""
    target_mib = options.target_mib or (_QUICK_TARGET_MIB if options.quick else _TARGET_MIB)
    for query in QUERIES.values():
        if options.query in (None, query.name):
            yield Plan(
                query=query,
                folder=folder,
                providers=tuple(name for name in options.providers if name in LIMITED),
                rounds=options.rounds,
                partitions=options.partitions,
                target_mib=target_mib,
                rows=options.rows or _ROWS_PER_MIB * target_mib,
                batches=options.resident_batches or (10 if options.quick else 30),
                driver_memory=options.driver_memory,
            )
