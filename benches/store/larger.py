"""Batches on one state store of which memory holds a tenth, on every provider with that limit."""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.java import compile_java
from common.limits import LIMITED, memory_limit
from common.report import Result
from common.rounds import Metric, Run, WrongStateError, in_rounds
from common.targets import Target

from harness.process import follow
from harness.providers import TITLES
from harness.screen import Screen

_HERE = Path(__file__).parent
_SILENCE_S = 600.0

#: The rows of `io.holdfast.bench.WideRows`.
_KEY_BYTES, _VALUE_BYTES = 16, 96

_DEFAULT_KEYS = 2_000_000
_STATE_PER_MEMORY = 10
_MIB = 1 << 20

_WORKLOAD_TITLES = {"zipf": "Zipf 0.99 keys", "uniform": "uniform keys", "new": "mostly new keys"}

BATCH = {
    name: Metric(name=f"{name}_batch_ms", title=f"batch, {title}, ms", decimals=1)
    for name, title in _WORKLOAD_TITLES.items()
}
COMMIT = {
    name: Metric(name=f"{name}_commit_ms", title=f"its commit, {title}, ms", decimals=1)
    for name, title in _WORKLOAD_TITLES.items()
}
READ_BYTES = {
    name: Metric(name=f"{name}_read_bytes", title=f"bytes read a key, {title}")
    for name, title in _WORKLOAD_TITLES.items()
}
READS = {
    name: Metric(name=f"{name}_reads", title=f"read calls a key, {title}", decimals=2)
    for name, title in _WORKLOAD_TITLES.items()
}
PUBLISH = Metric(name="publish_ms", title="commit log entry, ms", decimals=1)
MAINTENANCE = Metric(name="maintenance_ms", title="maintenance, ms")
WRITTEN = Metric(name="written", title="bytes written, per byte of touched keys", decimals=1)
MEMORY = Metric(name="memory", title="memory as reported, most, of the limit", decimals=2)
RESIDENT = Metric(name="resident", title="resident beyond a process without, most, MiB")

METRICS = (
    *BATCH.values(),
    *COMMIT.values(),
    *READS.values(),
    *READ_BYTES.values(),
    *(PUBLISH, MAINTENANCE, WRITTEN, MEMORY, RESIDENT),
)

TARGETS = (
    Target(metric=BATCH["zipf"], at_most=0.5, to="rocksdb-changelog"),
    Target(metric=BATCH["uniform"], at_most=1, to="rocksdb-changelog"),
    Target(metric=BATCH["new"], at_most=0.5, to="rocksdb-changelog"),
    Target(metric=MEMORY, at_most=1.15),
)

NOTES = (
    "A batch: open, a get for each distinct key of its rows and a put where there is one, commit. "
    "Each run restores\nthe store first and leaves the first batches of each kind out. Files are "
    "in the page cache. Maintenance takes\nturns with batches here. Resident: the kernel's peak, "
    "with merges, what malloc keeps and what the JVM compiles."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of a store that is larger than memory.

    Attributes
    ----------
    keys
        Keys of the store.
    rows
        Rows of a batch.
    memory_mib
        Limit of memory: Holdfast's target, the whole of RocksDB's caches and write buffers.
    free_rocksdb
        True if RocksDB has no such limit, as by default.
    warm_up, batches
        Batches of each kind in a run that are left out, and that are measured.
    maintain_every
        Batches from one maintenance to the next.
    ends
        End of the newest run of each provider, from which the next run goes on.
    states
        State at the end of the runs of each round.
    """

    folder: Path
    providers: tuple[str, ...]
    rounds: int
    keys: int
    rows: int
    memory_mib: int
    free_rocksdb: bool
    warm_up: int
    batches: int
    maintain_every: int
    driver_memory: str
    ends: dict[str, Any] = field(default_factory=dict)
    states: dict[int | None, tuple[int, int]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "larger"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        whose = " of Holdfast alone" if self.free_rocksdb else ""
        return (
            f"{self.keys:,} keys of {_KEY_BYTES} bytes with values of {_VALUE_BYTES} bytes, memory"
            f"{whose} limited to {self.memory_mib} MiB; batches of {self.rows:,} rows, "
            f"{self.batches} of each kind after {self.warm_up}, maintenance after every "
            f"{self.maintain_every}\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {self.driver_memory}) that restores the store of the one before"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails, or a store answers wrongly.
        WrongStateError
            If stores of two providers have not the same state.
        BuildError
            If the Java part cannot be compiled.
        """
        classes = compile_java(_HERE / "java", into=self.folder / "larger-classes")
        with screen.runs():
            for provider in self.providers:
                self._run(screen, classes, provider, None)
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: self._run(screen, classes, provider, number),
                )
            )
        left_out = ("folder", "ends", "states")
        described = {key: value for key, value in asdict(self).items() if key not in left_out}
        return Result(
            name="larger",
            plan=described,
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
        )

    def _run(self, screen: Screen, classes: Path, provider: str, round_number: int | None) -> Run:
        """Fill a store where there is no number of a round."""
        what = "fill" if round_number is None else f"round {round_number + 1}"
        line = screen.run(f"{what}, {TITLES[provider]}", rows=None)
        load = os.getloadavg()[0]
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "end":
                self.ends[provider] = fields
            elif kind == "batch" and fields["measured"]:
                for name, value in fields["figures"].items():
                    figures[fields["workload"]][name].append(value)
                line.note(fields["workload"])
            elif kind == "step":
                line.note(fields["text"])

        follow(
            [str(_HERE / "larger_child.py")],
            spec=self._spec(classes, provider, round_number),
            log=self.folder / f"larger-{provider}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )
        line.finish("done")
        self._require_one_state(round_number, self.ends[provider])
        return Run(
            provider=provider,
            round_number=round_number or 0,
            load=load,
            values=self._values(figures, self.ends[provider]),
        )

    def _spec(self, classes: Path, provider: str, round_number: int | None) -> dict[str, Any]:
        return {
            "provider": provider,
            "folder": str(self.folder / f"larger-{provider}"),
            "classes": str(classes),
            "keys": self.keys,
            "rows": self.rows,
            "warm_up": self.warm_up,
            "batches": self.batches,
            "maintain_every": self.maintain_every,
            "workloads": list(_WORKLOAD_TITLES),
            "round": round_number,
            "at": None if round_number is None else self.ends[provider]["at"],
            "driver_memory": self.driver_memory,
            "settings": {
                # So that the heap is resident from the start.
                "spark.driver.extraJavaOptions": f"-Xms{self.driver_memory} -XX:+AlwaysPreTouch",
                **self._limits(provider, filling=round_number is None),
            },
        }

    def _limits(self, provider: str, *, filling: bool) -> dict[str, str]:
        # The state before the rounds need not be made in as little memory.
        memory_mib = self.memory_mib * (_STATE_PER_MEMORY if filling else 1)
        if provider != "holdfast" and self.free_rocksdb:
            return {}
        return memory_limit(provider, memory_mib)

    def _require_one_state(self, round_number: int | None, end: Mapping[str, Any]) -> None:
        found = (end["counted"], end["at"]["next_new"])
        expected = self.states.setdefault(round_number, found)
        if found != expected:
            raise WrongStateError(
                f"sum of counts and number of keys: expected {expected} as the other providers "
                f"have, found {found}"
            )

    def _values(
        self, figures: Mapping[str, Mapping[str, list[float]]], end: Mapping[str, Any]
    ) -> dict[str, list[float]]:
        of_all: dict[str, list[float]] = defaultdict(list)
        for of_workload in figures.values():
            for name, values in of_workload.items():
                of_all[name] += values
        touched_bytes = end["touched_keys"] * (_KEY_BYTES + _VALUE_BYTES)
        return {
            **{
                metric.name: figures[workload][of_batch]
                for metrics, of_batch in (
                    (BATCH, "batch_ms"),
                    (COMMIT, "commit_ms"),
                    (READS, "reads"),
                    (READ_BYTES, "read_bytes"),
                )
                for workload, metric in metrics.items()
                if workload in figures
            },
            PUBLISH.name: of_all["publish_ms"],
            MAINTENANCE.name: of_all["maintenance_ms"],
            WRITTEN.name: [end["written_bytes"] / touched_bytes],
            MEMORY.name: [max(of_all["memory_mib"], default=0) / self.memory_mib],
            RESIDENT.name: [end["peak_bytes"] / _MIB],
        }


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    keys = options.keys or _DEFAULT_KEYS
    state_bytes = keys * (_KEY_BYTES + _VALUE_BYTES)
    yield Plan(
        folder=folder,
        providers=tuple(name for name in options.providers if name in LIMITED),
        rounds=options.rounds,
        keys=keys,
        rows=options.rows or max(1, keys // 1000),
        memory_mib=max(1, round(state_bytes / _STATE_PER_MEMORY / _MIB)),
        free_rocksdb=options.free_rocksdb,
        warm_up=5,
        batches=10,
        maintain_every=5,
        driver_memory=options.driver_memory,
    )
