"""How much one store writes over a day of small changes on a large state."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.java import compile_java
from common.report import Result
from common.rounds import Metric, Run, in_rounds
from common.targets import Target

from harness.process import follow
from harness.providers import TITLES
from harness.screen import Screen
from store.measure import DEFAULT_KEYS

_HERE = Path(__file__).parent
_SILENCE_S = 600.0

#: The rows of `io.holdfast.bench.Rows`.
_KEY_BYTES, _VALUE_BYTES = 16, 24

CHECKPOINT = Metric(
    name="checkpoint", title="bytes into the checkpoint, per byte changed", decimals=1
)
PROCESS = Metric(name="process", title="bytes the process wrote, per byte changed", decimals=1)
FILES = Metric(name="files", title="files, per batch", decimals=2)
COMMIT = Metric(name="commit_ms", title="commit, ms", decimals=2)
MAINTENANCE = Metric(name="maintenance_ms", title="maintenance, ms", decimals=2)

METRICS = (CHECKPOINT, PROCESS, FILES, COMMIT, MAINTENANCE)

NOTES = (
    "Without the batch that puts all keys, and what maintenance makes of it. Into the checkpoint: "
    "the files that appear there,\nalso those that are deleted later. The process: what its "
    "system calls wrote, so that of RocksDB it has the files on the\nlocal disk, too."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of the bytes that a store writes.

    Attributes
    ----------
    keys, changes
        Keys of the store, and how many of them a batch changes.
    batches
        Batches of a run, each with a maintenance behind it.
    """

    folder: Path
    providers: tuple[str, ...]
    rounds: int
    keys: int
    changes: int
    batches: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "writes"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.keys:,} keys of {_KEY_BYTES} bytes with values of {_VALUE_BYTES} bytes, "
            f"{self.batches:,} batches of {self.changes:,} changed keys each, maintenance after "
            f"every batch\n{self.rounds} rounds x {len(self.providers)} providers in rotated "
            f"order, each run in a fresh JVM (heap {self.driver_memory})"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails, or a store answers wrongly.
        BuildError
            If the Java part cannot be compiled.
        """
        classes = compile_java(_HERE / "java", into=self.folder / "writes-classes")
        curves: list[dict[str, Any]] = []
        with screen.runs():
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: self._run(screen, classes, provider, number, curves),
                )
            )
        described = {key: value for key, value in asdict(self).items() if key != "folder"}
        return Result(
            name="writes",
            plan={**described, "curves": curves},
            metrics=METRICS,
            targets=(Target(metric=CHECKPOINT, at_most=1, to="rocksdb"),),
            runs=runs,
            notes=NOTES,
        )

    def _run(
        self,
        screen: Screen,
        classes: Path,
        provider: str,
        round_number: int,
        curves: list[dict[str, Any]],
    ) -> Run:
        folder = self.folder / "writes-checkpoint"
        spec = {
            "provider": provider,
            "folder": str(folder),
            "classes": str(classes),
            "keys": self.keys,
            "changes": self.changes,
            "batches": self.batches,
            "driver_memory": self.driver_memory,
        }
        line = screen.run(f"round {round_number + 1}, {TITLES[provider]}", rows=None)
        load = os.getloadavg()[0]
        curve: list[Mapping[str, Any]] = []

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "written":
                curve.append(fields)
                line.note(f"batch {fields['batch']:,}")

        follow(
            [str(_HERE / "writes_child.py")],
            spec=spec,
            log=self.folder / f"writes-{provider}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )
        line.finish("done")
        shutil.rmtree(folder)
        curves.append({"provider": provider, "round": round_number, "written": curve})
        first, last = curve[0], curve[-1]
        changed_bytes = self.batches * self.changes * (_KEY_BYTES + _VALUE_BYTES)
        values = {
            CHECKPOINT.name: [(last["checkpoint"] - first["checkpoint"]) / changed_bytes],
            PROCESS.name: [(last["process"] - first["process"]) / changed_bytes],
            FILES.name: [(last["files"] - first["files"]) / self.batches],
            COMMIT.name: [one["commit_ms"] for one in curve[1:]],
            MAINTENANCE.name: [one["maintenance_ms"] for one in curve[1:]],
        }
        return Run(provider=provider, round_number=round_number, load=load, values=values)


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    keys = options.keys or DEFAULT_KEYS
    yield Plan(
        folder=folder,
        providers=tuple(options.providers),
        rounds=options.rounds,
        keys=keys,
        changes=max(1, keys // 1000),
        batches=options.write_batches or (200 if options.quick else 2_000),
        driver_memory=options.driver_memory,
    )
