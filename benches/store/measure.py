"""State stores of one partition, measured below any query: one thread, one provider per JVM."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from common.java import compile_java
from common.recording import flight_recording
from common.report import Result
from common.rounds import Metric, Run, in_rounds
from common.targets import Target

from harness.process import SparkChild
from harness.providers import TITLES
from harness.screen import Screen

_HERE = Path(__file__).parent
_SILENCE_S = 600.0

DEFAULT_KEYS = 1_000_000

PUT = Metric(name="put_ns", title="put of a new key, ns")
UPDATE = Metric(name="update_ns", title="put of a known key, ns")
GET = Metric(name="get_ns", title="get of a known key, ns")
MISS = Metric(name="miss_ns", title="get of an unknown key, ns")
REMOVE = Metric(name="remove_ns", title="remove, ns")
SCAN = Metric(name="scan_ns", title="full scan, ns a row")
PREFIX_PUT = Metric(name="prefix_put_ns", title="put of a key with a prefix, ns")
PREFIX = Metric(name="prefix_us", title="prefix scan of 10 keys, us", decimals=2)
OPEN = Metric(name="open_ms", title="open for changes, ms", decimals=2)
COMMIT = Metric(name="commit_ms", title="commit of few changes, ms", decimals=2)
COMMIT_ALL = Metric(name="commit_all_ms", title="commit of all keys, ms")
PUBLISH = Metric(name="publish_ms", title="commit log entry, ms", decimals=1)
ENTRY_BYTES = Metric(name="entry_bytes", title="memory, bytes an entry", decimals=1)
RESTORE = Metric(name="restore_ms", title="restore, no maintenance, ms")
RESTORE_MAINTAINED = Metric(name="restore_maintained_ms", title="restore, maintained, ms")
RESTORE_IMAGE = Metric(name="restore_image_ms", title="restore of an image, ms")
RESTORE_ALL = Metric(name="restore_all_ms", title="restore and get all keys, ms")
RESTORE_COLD = Metric(name="restore_cold_ms", title="restore, keys stay on disk, ms")

METRICS = (
    *(PUT, UPDATE, GET, MISS, REMOVE, SCAN, PREFIX_PUT, PREFIX, OPEN, COMMIT, COMMIT_ALL),
    *(PUBLISH, ENTRY_BYTES, RESTORE, RESTORE_MAINTAINED, RESTORE_COLD),
)
RESTORES = (RESTORE_IMAGE, RESTORE_ALL)

TARGETS = (
    Target(metric=PUT, at_most=0.25, to="rocksdb"),
    Target(metric=PUT, at_most=0.25, to="rocksdb-changelog"),
    Target(metric=PUT, at_most=1, to="spark"),
    Target(metric=GET, at_most=0.25, to="rocksdb"),
    Target(metric=GET, at_most=0.25, to="rocksdb-changelog"),
    Target(metric=GET, at_most=1, to="spark"),
    Target(metric=ENTRY_BYTES, at_most=0.5, to="spark"),
    Target(metric=SCAN, at_most=60),
    Target(metric=PREFIX, at_most=0.5, to="rocksdb"),
    Target(metric=PREFIX, at_most=0.5, to="rocksdb-changelog"),
    Target(metric=RESTORE, at_most=1 / 3, to="rocksdb-changelog"),
    Target(metric=RESTORE_MAINTAINED, at_most=1 / 3, to="rocksdb-changelog"),
    Target(metric=RESTORE_COLD, at_most=0.2, to="rocksdb-changelog"),
)
OF_RESTORES = (Target(metric=RESTORE_IMAGE, at_most=0.2, to="rocksdb-changelog"),)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of one store.

    Attributes
    ----------
    keys
        Keys of each store.
    changes
        Keys that the measured commits change; commits before a restore change twice as many.
    changelogs
        Commits before a restore; 0 leaves restores out.
    jfr
        Folder for flight recordings; None for none.
    title
        Heading, and name of the result.
    restores_only
        Measure nothing but restores of a store most of which is in an image.
    """

    folder: Path
    providers: tuple[str, ...]
    rounds: int
    keys: int
    changes: int
    changelogs: int
    driver_memory: str
    jfr: Path | None
    title: str = "store"
    restores_only: bool = False

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        restores = (
            f"restores after {self.changelogs} commits of {2 * self.changes:,} keys"
            if self.changelogs
            else "no restores"
        )
        return (
            f"{self.keys:,} keys of 16 bytes with values of 24 bytes, commits of {self.changes:,} "
            f"changes, {restores}; one thread\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {self.driver_memory}) that warms up first"
        )

    def _targets(self) -> tuple[Target, ...]:
        if self.restores_only:
            return OF_RESTORES
        # The targets are for one size.
        return TARGETS if self.title == "store" else ()

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails, or a store answers wrongly.
        BuildError
            If the Java part cannot be compiled.
        """
        classes = compile_java(_HERE / "java", into=self.folder / f"{self.title}-classes")
        with screen.runs():
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: _run(self, screen, classes, provider, number),
                )
            )
        left_out = ("folder", "jfr", "title", "restores_only")
        described = {key: value for key, value in asdict(self).items() if key not in left_out}
        return Result(
            name=self.title,
            plan=described,
            metrics=RESTORES if self.restores_only else METRICS,
            targets=self._targets(),
            runs=runs,
            notes=NOTES,
        )


NOTES = (
    "Memory: what the provider reports plus the growth of the heap after collections; for Spark "
    "default the latter alone.\nRestore: a fresh provider until it answers its first get, files in "
    "the page cache; maintained: maintenance ran after\nevery commit; of an image: the same with "
    "an image or snapshot every few commits; on disk: that, and Holdfast with a\n"
    "target_memory_bytes so small that keys are read when they are asked for."
)


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        providers=tuple(options.providers),
        rounds=options.rounds,
        keys=options.keys or DEFAULT_KEYS,
        changes=10_000,
        changelogs=options.changelogs,
        driver_memory=options.driver_memory,
        jfr=options.jfr,
    )


#: Keys of the stores of which each has another size.
SIZES = (100_000, 400_000, 1_600_000)


def plans_by_size(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure of stores of several sizes; the targets are those of one size."""
    for keys in SIZES:
        for plan in plans(options, folder):
            yield replace(plan, keys=keys, title=f"store-{keys}-keys")


#: Stores whose restores are compared, or one of them by ``--keys``.
RESTORED = (1_000_000, 3_000_000, 10_000_000)


def plans_of_restores(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure of restores of stores of several sizes."""
    for keys in (options.keys,) if options.keys else RESTORED:
        for plan in plans(options, folder):
            title = f"restores-{keys}-keys"
            yield replace(plan, keys=keys, title=title, restores_only=True)


def _run(plan: Plan, screen: Screen, classes: Path, provider: str, round_number: int) -> Run:
    folder = plan.folder / "stores"
    spec: dict[str, Any] = {
        "provider": provider,
        "folder": str(folder),
        "classes": str(classes),
        "keys": plan.keys,
        "changes": plan.changes,
        "changelogs": plan.changelogs,
        "restores_only": plan.restores_only,
        "driver_memory": plan.driver_memory,
        "settings": flight_recording(plan.jfr, f"store-{provider}-{round_number}"),
    }
    line = screen.run(f"round {round_number + 1}, {TITLES[provider]}", rows=None)
    load = os.getloadavg()[0]
    values: dict[str, list[float]] = {}
    command = [str(_HERE / "child.py")]
    with SparkChild(command, spec=spec, log=plan.folder / f"{provider}.log") as child:
        for kind, fields in child.events(silence_s=_SILENCE_S):
            if kind == "step":
                line.note(fields["text"])
            elif kind == "figures":
                values = fields["values"]
    line.finish("done")
    shutil.rmtree(folder)
    return Run(provider=provider, round_number=round_number, load=load, values=values)
