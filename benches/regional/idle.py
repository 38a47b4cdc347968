"""Few active regions among very many known ones, beside the same without the others: no Spark."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target

import holdfast
from harness.screen import Screen

BATCH = Metric(name="batch_ms", title="batch, ms", decimals=1)
CPU = Metric(name="cpu_ms", title="processor time of a batch, ms", decimals=1)
START = Metric(name="start_ms", title="start from the checkpoint, ms", decimals=1)
START_CPU = Metric(name="start_cpu_ms", title="processor time of a start, ms", decimals=1)
METADATA = Metric(name="metadata_kib", title="metadata that a batch writes, KiB", decimals=1)

METRICS = (BATCH, CPU, START, START_CPU, METADATA)

#: The same pipeline without idle regions.
ALONE = "no others"

TARGETS = (
    Target(metric=BATCH, at_most=1.5, to=ALONE),
    Target(metric=START, at_most=1.5, to=ALONE),
)

NOTES = "A start opens the checkpoint without reading segments (verify_state=False)."

_ROWS = pa.schema([("region", pa.string()), ("value", pa.int64())])


class _Sums(holdfast.Operator):
    """Adds to an array that is too large to be kept in the metadata."""

    region_safe = True

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.sums = ctx.state.array("sums", shape=(512,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> None:
        self.sums += batch.column("value")[0].as_py()  # references of all regions differ


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of pipelines in this process, a batch of the one and then of the other."""

    folder: Path
    rounds: int
    batches: int
    known: int
    active: int = 10

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "idle"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.active} active regions of {self.known:,} known ones, beside {self.active} of "
            f"{self.active}; each has an array of 4 KiB\n{self.rounds} rounds of a start and "
            f"{self.batches} batches, in turns"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        known = {MEASURED: self.known, ALONE: self.active}
        runs = []
        for name, count in known.items():
            with self._opened(name) as query:
                _run(query, range(count))
                for _ in range(4):  # no retained checkpoint is of more regions then
                    _run(query, range(self.active))
        with screen.runs():
            for number in range(self.rounds):
                line = screen.run(f"round {number + 1}", rows=None)
                load = os.getloadavg()[0]
                values = {name: _empty() for name in known}
                with ExitStack() as opened:
                    queries = {}
                    for name in known:
                        begun = time.process_time()
                        started, queries[name] = _timed(lambda name=name: self._opened(name))
                        values[name][START.name].append(started)
                        values[name][START_CPU.name].append((time.process_time() - begun) * 1e3)
                        opened.enter_context(queries[name])
                        _run(queries[name], range(self.active))  # warms up
                    for _ in range(self.batches):
                        for name, query in queries.items():
                            begun = time.process_time()
                            taken, _ = _timed(lambda query=query: _run(query, range(self.active)))
                            values[name][BATCH.name].append(taken)
                            values[name][CPU.name].append((time.process_time() - begun) * 1e3)
                    for name, query in queries.items():
                        metadata = self._folder(name) / "checkpoint" / "metadata"
                        size = (metadata / f"{query.latest.id:016x}.hfc").stat().st_size
                        values[name][METADATA.name].append(size / 1024)
                runs += [
                    Run(provider=name, round_number=number, load=load, values=values[name])
                    for name in known
                ]
                line.finish("done")
        return Result(
            name="idle",
            plan={key: value for key, value in asdict(self).items() if key != "folder"},
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(ALONE,),
        )

    def _folder(self, name: str) -> Path:
        return self.folder / "idle" / name.replace(" ", "-")

    def _opened(self, name: str) -> holdfast.LocalQuery:
        folder = self._folder(name)
        return (
            holdfast.regional(region_by="region")
            .apply(_Sums(), schema=_ROWS)
            .write_parquet(folder / "out")
            .open_local(folder / "checkpoint", verify_state=False)
        )


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    known = 2_000 if options.quick else 20_000
    yield Plan(folder=folder, rounds=options.rounds, batches=20, known=known)


def _empty() -> dict[str, list[float]]:
    return {metric.name: [] for metric in METRICS}


def _run(query: holdfast.LocalQuery, regions: range) -> None:
    names = [f"region-{number:06}" for number in regions]
    rows = pa.record_batch({"region": names, "value": list(regions)}, schema=_ROWS)
    query.run_batch([[rows]])


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return (time.perf_counter() - begun) * 1e3, result
