"""Tables by key: batches beside those of an operator without state, and calls beside a dict."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target

import holdfast
from harness.screen import Screen

BATCH = Metric(name="batch_ms", title="batch, ms", decimals=1)
WRITTEN = Metric(name="written_kb", title="written by a batch, kB", decimals=1)
START = Metric(name="start_ms", title="start to the end of the first batch, ms")
BEYOND = Metric(name="beyond_ms", title="start to the end of the first batch, beyond no state, ms")
FILL = Metric(name="fill_ms", title="a batch of 1 M keys, ms")
SECOND = Metric(name="second_ms", title="the second batch of 1 row, ms")
FIRST_GET = Metric(name="first_get_ns", title="get in the first calls after a start, ns a key")
GET = Metric(name="get_ns", title="get, ns a key")
UPSERT = Metric(name="upsert_ns", title="upsert, ns a key")

METRICS = (BATCH, WRITTEN, START, FIRST_GET, GET, UPSERT)

#: The same pipeline without state.
STATELESS = "no state"
#: The same calls of a dict of Python.
DICT = "dict"

TARGETS = (
    Target(metric=WRITTEN, at_most=100),
    Target(metric=GET, at_most=500),
    Target(metric=GET, at_most=5, to=DICT),
    Target(metric=UPSERT, at_most=500),
    Target(metric=UPSERT, at_most=5, to=DICT),
)

WAITING_METRICS = (BEYOND, FILL, SECOND)

WAITING_TARGETS = (Target(metric=BEYOND, at_most=1000),)

NOTES = (
    "A call has 10,000 keys. What a process writes includes metadata. A start reads no segments to "
    "verify them (verify_state=False)."
)

#: Keys of one call, and calls of a round.
_CALL = 10_000
_CALLS = 20

_ROWS = pa.schema([("region", pa.string()), ("key", pa.int64()), ("value", pa.int64())])


class _Keeping(holdfast.Operator):
    """Keeps the newest value of each key; `measure` is called with the table, once."""

    region_safe = True
    measure: Callable[[Any], None] | None = None

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps

    def open(self, ctx: holdfast.OperatorContext) -> None:
        if self.keeps:
            self.table = ctx.state.table("values", key=pa.int64(), value=pa.int64())

    def process(self, batch: pa.RecordBatch) -> None:
        if self.keeps:
            keys, values = batch.column("key"), batch.column("value")
            self.table.get(keys)
            self.table.upsert(keys, values)
            measure, _Keeping.measure = _Keeping.measure, None
            if measure is not None:
                measure(self.table)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of pipelines in this process, a batch of the one and then of the other."""

    folder: Path
    rounds: int
    batches: int
    keys: int
    changed: int = 1_000

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "keyed"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"a table of {self.keys:,} keys of which a batch changes {self.changed:,}, beside an "
            f"operator without state, and calls beside a dict\n{self.rounds} rounds of a start and "
            f"{self.batches} batches, in turns"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        random = np.random.default_rng(0)
        with self._opened(MEASURED) as query:
            for first in range(0, self.keys, 1_000_000):
                _run(query, np.arange(first, min(self.keys, first + 1_000_000)))
        runs = []
        with screen.runs():
            for number in range(self.rounds):
                line = screen.run(f"round {number + 1}", rows=None)
                load = os.getloadavg()[0]
                values = self._round(random)
                runs += [
                    Run(provider=name, round_number=number, load=load, values=of_one)
                    for name, of_one in values.items()
                ]
                line.finish("done")
        return Result(
            name="keyed",
            plan={key: value for key, value in asdict(self).items() if key != "folder"},
            metrics=METRICS,
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(STATELESS, DICT),
        )

    def _round(self, random: np.random.Generator) -> dict[str, dict[str, list[float]]]:
        values: dict[str, dict[str, list[float]]] = {
            name: {metric.name: [] for metric in METRICS} for name in (MEASURED, STATELESS, DICT)
        }
        queries = {}
        with ExitStack() as opened:
            for name in (MEASURED, STATELESS):
                begun = time.perf_counter()
                queries[name] = opened.enter_context(self._opened(name))
                _run(queries[name], random.integers(0, self.keys, 1))
                values[name][START.name].append((time.perf_counter() - begun) * 1e3)
            for _ in range(self.batches):
                for name, query in queries.items():
                    keys, before = random.integers(0, self.keys, self.changed), _written()
                    begun = time.perf_counter()
                    _run(query, keys)
                    values[name][BATCH.name].append((time.perf_counter() - begun) * 1e3)
                    values[name][WRITTEN.name].append((_written() - before) / 1e3)
            _Keeping.measure = lambda table: _calls(table, random, self.keys, values)
            _run(queries[MEASURED], random.integers(0, self.keys, 1))
        return values

    def _opened(self, name: str) -> holdfast.LocalQuery:
        return _open(self.folder / "keyed", name)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A measurement of starts while changes of many batches wait for their first merge."""

    folder: Path
    rounds: int
    batches: int
    keys: int

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "keyed-waiting"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"starts of a table that {self.batches} batches of {self.keys:,} new keys in no "
            f"order have filled, beside an operator without state\n{self.rounds} rounds"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        runs = []
        with screen.runs():
            for number in range(self.rounds):
                line = screen.run(f"round {number + 1}", rows=None)
                load = os.getloadavg()[0]
                values = self._round(self.folder / f"waiting-{number}")
                runs.append(Run(provider=MEASURED, round_number=number, load=load, values=values))
                line.finish("done")
        return Result(
            name="keyed-waiting",
            plan={key: value for key, value in asdict(self).items() if key != "folder"},
            metrics=WAITING_METRICS,
            targets=WAITING_TARGETS,
            runs=runs,
            notes=NOTES,
        )

    def _round(self, folder: Path) -> dict[str, list[float]]:
        # Odd numbers have an inverse modulo 2^64, so the keys differ.
        shuffled = np.arange(self.keys * self.batches, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        batches = np.split(shuffled.view(np.int64), self.batches)
        with _open(folder, MEASURED) as query:
            fills = [_timed(_run, query, keys) for keys in batches]
        starts = {}
        for name in (STATELESS, MEASURED):
            with ExitStack() as opened:
                begun = time.perf_counter()
                query = opened.enter_context(_open(folder, name))
                _run(query, batches[0][:1])
                starts[name] = (time.perf_counter() - begun) * 1e3
                second = _timed(_run, query, batches[-1][:1])
        shutil.rmtree(folder)
        return {
            BEYOND.name: [starts[MEASURED] - starts[STATELESS]],
            FILL.name: fills,
            SECOND.name: [second],
        }


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan | Waiting]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    keys = 100_000 if options.quick else 1_000_000
    yield Plan(folder=folder, rounds=options.rounds, batches=20, keys=keys)
    yield Waiting(folder=folder, rounds=options.rounds, batches=10, keys=keys)


def _open(folder: Path, name: str) -> holdfast.LocalQuery:
    return (
        holdfast.regional(region_by="region")
        .apply(_Keeping(keeps=name == MEASURED), schema=_ROWS)
        .foreach_batch(lambda rows, checkpoint: None)
        .open_local(folder / name.replace(" ", "-"), verify_state=False)
    )


def _timed(act: Callable[..., object], *arguments: object) -> float:
    begun = time.perf_counter()
    act(*arguments)
    return (time.perf_counter() - begun) * 1e3


def _calls(
    table: Any,
    random: np.random.Generator,
    size: int,
    values: dict[str, dict[str, list[float]]],
) -> None:
    """Measure calls of a table, and the same of a dict with as many keys."""
    calls = [random.integers(0, size, _CALL) for _ in range(_CALLS)]
    arrays = [pa.array(keys) for keys in calls]
    lists = [keys.tolist() for keys in calls]
    model = dict.fromkeys(range(size), 0)
    work: dict[tuple[str, str], Callable[[int], object]] = {
        # Keys come into memory beside these.
        (MEASURED, FIRST_GET.name): lambda call: table.get(arrays[call]),
        (MEASURED, GET.name): lambda call: table.get(arrays[call]),
        (DICT, GET.name): lambda call: [model.get(key) for key in lists[call]],
        (MEASURED, UPSERT.name): lambda call: table.upsert(arrays[call], arrays[call]),
        (DICT, UPSERT.name): lambda call: model.update(zip(lists[call], lists[call], strict=True)),
    }
    for (name, metric), one in work.items():
        begun = time.perf_counter()
        for call in range(_CALLS):
            one(call)
        seconds = time.perf_counter() - begun
        values[name][metric].append(seconds / (_CALL * _CALLS) * 1e9)


def _run(query: holdfast.LocalQuery, keys: npt.NDArray[np.int64]) -> None:
    columns = [pa.array(["one"] * len(keys)), keys, keys + time.monotonic_ns()]
    query.run_batch([[pa.table(columns, schema=_ROWS)]])


def _written() -> int:
    """Bytes that this process wrote so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["wchar"])
