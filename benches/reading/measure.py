"""Opens, gets, scans and branches of a checkpoint, on a local disk and on S3."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, WrongStateError, rotated
from common.targets import MEASURED, Target
from regional.places import S3_REQUEST_MS, Place, open_place

from harness.process import follow
from harness.screen import Screen

_CHILD = Path(__file__).with_name("child.py")
_SILENCE_S = 1800.0
_PARTITIONS = 4
_MIB = 1 << 20

OPEN = Metric(name="open_s", title="open, s", decimals=2)
OPEN_S3 = Metric(name="open_s3_s", title="open on S3, s", decimals=2)
COLD_READS = Metric(name="cold_reads", title="cold get of a key on S3, ranged reads")
COLD_REQUESTS = Metric(name="cold_requests", title="cold get of a key on S3, all requests")
COLD = Metric(name="cold_s", title="cold get of a key on S3, s", decimals=2)
NEXT_READS = Metric(name="next_reads", title="get of a key from open stores on S3, ranged reads")
NEXT = Metric(name="next_s", title="get of a key from open stores on S3, s", decimals=2)
P50 = Metric(name="p50_ms", title="warm get of a key, p50, ms", decimals=3)
P99 = Metric(name="p99_ms", title="warm get of a key, p99, ms", decimals=3)
#: On a busy machine other processes take the core during a part of the gets.
P99_ALONE = Metric(
    name="p99_alone_ms", title="the same of gets that kept their core, ms", decimals=3
)
PREEMPTED = Metric(name="preempted_percent", title="gets that lost their core, %", decimals=1)
MANY = Metric(name="batch_us", title="get of 100,000 keys, us of CPU a key", decimals=2)
MANY_KEYS = Metric(
    name="batch_keys", title="get of 100,000 keys, keys/s of CPU", more_is_better=True
)
SCAN = Metric(name="scan_us", title="scan, us of CPU a row", decimals=3)
SCAN_ROWS = Metric(name="scan_rows", title="scan, rows/s of CPU", more_is_better=True)
SCAN_MEMORY = Metric(name="scan_mib", title="scan, more resident memory, MiB")
BRANCH = Metric(name="branch_s", title="branch, s", decimals=2)
BRANCH_WRITTEN = Metric(name="branch_mib", title="branch, written, MiB", decimals=3)

METRICS = (
    *(OPEN, OPEN_S3, COLD_READS, COLD_REQUESTS, COLD, NEXT_READS, NEXT, P50, P99),
    *(P99_ALONE, PREEMPTED, MANY, MANY_KEYS, SCAN, SCAN_ROWS, SCAN_MEMORY, BRANCH, BRANCH_WRITTEN),
)

#: 5 us a key are 200,000 keys/s, and 1 us a row is 1,000,000 rows/s.
TARGETS = (
    Target(metric=OPEN, at_most=1),
    Target(metric=OPEN_S3, at_most=1),
    Target(metric=COLD_READS, at_most=3),
    Target(metric=P99, at_most=1),
    Target(metric=MANY, at_most=5),
    Target(metric=SCAN, at_most=1),
    Target(metric=SCAN_MEMORY, at_most=256),
    Target(metric=BRANCH, at_most=2),
    Target(metric=BRANCH_WRITTEN, at_most=1),
)

NOTES = (
    "Each step is a process of its own: local reads, reads on S3, a branch. Opens include the "
    "import of PyArrow. Memory is\nthat beyond what the process has before a scan. CPU time is "
    "that of all threads. All rows and answers are checked."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A checkpoint of one aggregation, and processes that read it."""

    folder: Path
    rounds: int
    keys: int
    gets: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"reading-{self.keys}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"groupBy(text key).agg(count, sum), {self.keys:,} keys in {_PARTITIONS} partitions: "
            "opens, gets, scans and branches without Spark\n"
            f"{self.rounds} rounds of local reads, reads on S3 ({S3_REQUEST_MS} ms a request) and "
            "branches in rotated order"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "keys": self.keys,
            "partitions": _PARTITIONS,
            "gets": self.gets,
            "batches": 10,
            "batch_keys": min(self.keys, 100_000),
            "rounds": self.rounds,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a step fails.
        WrongStateError
            If the checkpoint has not all keys.
        """
        folder = self.folder / self.title
        folder.mkdir()
        with open_place("s3", folder / "s3") as place, screen.runs():
            steps = Steps(self, folder, place)
            line = screen.run("checkpoint", rows=None)
            found = steps.make()
            if found != self.keys:
                raise WrongStateError(f"expected {self.keys:,} keys, found {found:,}")
            line.finish("made")
            runs = []
            for number in range(self.rounds):
                line, load = screen.run(f"round {number + 1}", rows=None), os.getloadavg()[0]
                values: dict[str, list[float]] = {}
                for step in rotated(("read", "remote", "branch"), number):
                    line.note(step)
                    figures = getattr(steps, step)(number)
                    values.update({name: [figure] for name, figure in figures.items()})
                line.finish("done")
                runs.append(Run(provider=MEASURED, round_number=number, load=load, values=values))
        return Result(
            name=self.title,
            plan=self.to_json(),
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(),
        )


class Steps:
    """Processes on one checkpoint, and what they report."""

    def __init__(self, plan: Plan, folder: Path, place: Place) -> None:
        self._plan, self._folder, self._place = plan, folder, place
        self._checkpoint = folder / "checkpoint"
        bucket = place.uri.partition("://")[2]
        self._on_s3 = folder / "s3" / "buckets" / bucket / "checkpoint"
        of_s3a = {
            name: place.settings[f"spark.hadoop.fs.s3a.{name}"]
            for name in ("access.key", "secret.key", "endpoint")
        }
        self._uri = (
            f"s3://{of_s3a['access.key']}:{of_s3a['secret.key']}@{bucket}/checkpoint?scheme=http"
            f"&region=us-east-1&endpoint_override={of_s3a['endpoint'].removeprefix('http://')}"
        )

    def make(self) -> int:
        """Make the checkpoint; returns the number of its keys."""
        keys = 0

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            nonlocal keys
            if kind == "batch":
                keys = fields["state_rows"]

        self._follow("make", 0, on_event)
        # Nothing changes a file of the checkpoint: S3 may have the same ones.
        hidden = shutil.ignore_patterns(".*")
        shutil.copytree(self._checkpoint, self._on_s3, ignore=hidden, copy_function=os.link)
        return keys

    def read(self, number: int) -> dict[str, float]:
        """Read the local checkpoint."""
        return self._figures("read", number)

    def remote(self, number: int) -> dict[str, float]:
        """Get one key on S3, twice, and count requests before and after."""
        counts: list[Counter[str]] = []

        def count(fields: Mapping[str, Any]) -> None:
            counts.append(self._place.requests())
            os.kill(fields["process"], signal.SIGUSR1)

        figures = self._figures("remote", number, count)
        cold, later = (counts[at + 1] - counts[at] for at in (0, 2))
        return {
            **figures,
            COLD_READS.name: cold["GetObject"],
            COLD_REQUESTS.name: cold.total(),
            NEXT_READS.name: later["GetObject"],
        }

    def branch(self, number: int) -> dict[str, float]:
        """Make a branch, and count all bytes of new and changed files."""
        before = self._files()
        figures = self._figures("branch", number)
        written = self._files().items() - before.items()
        return {**figures, BRANCH_WRITTEN.name: sum(size for _, (size, _) in written) / _MIB}

    def _files(self) -> Mapping[Path, tuple[int, int]]:
        found = {
            path: path.stat()
            for top in self._folder.glob("[bc]*")
            for path in top.rglob("*")
            if path.is_file()
        }
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    def _figures(
        self,
        step: str,
        number: int,
        count: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> dict[str, float]:
        figures: dict[str, float] = {}

        def on_event(kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "figures":
                figures.update(fields)
            elif kind == "count":
                count(fields)

        self._follow(step, number, on_event)
        return figures

    def _follow(
        self, step: str, number: int, on_event: Callable[[str, dict[str, Any]], None]
    ) -> None:
        follow(
            [str(_CHILD)],
            spec={
                **self._plan.to_json(),
                "step": step,
                "seed": number,
                "folder": str(self._folder),
                "checkpoint": str(self._checkpoint),
                "branch": str(self._folder / f"branch-{number}"),
                "uri": self._uri,
            },
            log=self._folder / f"{step}.log",
            silence_s=_SILENCE_S,
            on_event=on_event,
        )


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield the plan, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        rounds=options.rounds,
        keys=options.keys or (200_000 if options.quick else 10_000_000),
        gets=2_000 if options.quick else 20_000,
        driver_memory=options.driver_memory,
    )
