"""``groupBy(key).count()`` on Holdfast and on Spark's three configurations, alternating."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.demo.figures import BatchFigures, RunFigures
from holdfast.demo.objects import count_state_objects
from holdfast.demo.process import SparkChild
from holdfast.demo.providers import TITLES
from holdfast.demo.screen import Screen

#: Spark's three configurations, then Holdfast.
ALL_PROVIDERS = ("spark", "rocksdb", "rocksdb-changelog", "holdfast")

#: A prime, so that (i * KEY_STEP) mod keys meets every key once before it repeats one.
KEY_STEP = 7919

_FIRST_FILE_SECONDS = 1_700_000_000
_SILENCE_S = 300.0


class WrongStateError(RuntimeError):
    """A run ended with another number of keys in its state than its input has."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes
    ----------
    rounds
        In each round every provider runs once, each in a fresh JVM; the order is rotated
        from round to round.
    batches
        Batches per run; batch 0 warms the JVM up and is dropped from the times.
    rows, keys
        Rows per batch, and distinct keys of the whole input.
    """

    folder: Path
    providers: tuple[str, ...]
    rounds: int
    batches: int
    rows: int
    keys: int
    partitions: int
    driver_memory: str

    def order(self, round_number: int) -> tuple[str, ...]:
        """Return the providers in the order of one round."""
        turn = round_number % len(self.providers)
        return self.providers[turn:] + self.providers[:turn]

    def state_rows(self) -> int:
        """Return the number of keys in the state after the last batch."""
        return min(self.rows * self.batches, self.keys)

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.partitions} partitions, {self.rows:,} rows a batch, up to {self.keys:,} keys, "
            f"parquet source, noop sink, AvailableNow with one file a batch, local[2], AQE off\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {self.driver_memory}); {self.batches} batches a run, batch 0 "
            f"dropped from the times"
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one provider in one round; load is the 1 minute load average at its start."""

    round_number: int
    load: float
    figures: RunFigures

    @property
    def provider(self) -> str:
        """Name of the provider."""
        return self.figures.provider

    @property
    def measured(self) -> tuple[BatchFigures, ...]:
        """The batches after the warm-up."""
        return tuple(batch for batch in self.figures.batches if batch.batch_id > 0)

    @property
    def objects_per_batch(self) -> float:
        """Objects left at the end of the run, divided by its batches (batch 0 included)."""
        return self.figures.objects.files / len(self.figures.batches)

    @property
    def bytes_per_batch(self) -> float:
        """Bytes of those objects, divided likewise."""
        return self.figures.objects.files_bytes / len(self.figures.batches)


def write_input(plan: Plan) -> Path:
    """Write one parquet file per batch with the column ``key`` (int64)."""
    folder = plan.folder / "input"
    folder.mkdir()
    for batch in range(plan.batches):
        rows = np.arange(batch * plan.rows, (batch + 1) * plan.rows, dtype=np.int64)
        path = folder / f"part-{batch:05d}.parquet"
        pq.write_table(pa.table({"key": rows * KEY_STEP % plan.keys}), path)
        # Spark's file source takes files in the order of their modification times.
        os.utime(path, (_FIRST_FILE_SECONDS + batch, _FIRST_FILE_SECONDS + batch))
    return folder


def measure(plan: Plan, screen: Screen) -> list[Run]:
    """Run all rounds.

    Raises
    ------
    ChildError
        If a run fails.
    WrongStateError
        If the state of a run has another number of keys than its input.
    """
    data = write_input(plan)
    with screen.runs():
        return [
            _run(plan, screen, data=data, provider=provider, round_number=number)
            for number in range(plan.rounds)
            for provider in plan.order(number)
        ]


def _run(plan: Plan, screen: Screen, *, data: Path, provider: str, round_number: int) -> Run:
    checkpoint = plan.folder / "checkpoint"
    spec = {
        "provider": provider,
        "partitions": str(plan.partitions),
        "driver_memory": plan.driver_memory,
        "data": str(data),
        "checkpoint": str(checkpoint),
    }
    title = f"round {round_number + 1}, {TITLES[provider]}"
    line = screen.run(title, rows=plan.rows * plan.batches)
    load = os.getloadavg()[0]
    batches = []
    command = [str(Path(__file__).with_name("child.py"))]
    with SparkChild(command, spec=spec, log=plan.folder / f"{provider}.log") as child:
        for kind, fields in child.events(silence_s=_SILENCE_S):
            if kind == "batch":
                batches.append(BatchFigures(**fields))
                line.batch(batches[-1])
    line.finish("done")
    figures = RunFigures(
        query="groupby_count",
        provider=provider,
        batches=tuple(batches),
        objects=count_state_objects(checkpoint),
    )
    shutil.rmtree(checkpoint)
    check_state(plan, figures)
    return Run(round_number=round_number, load=load, figures=figures)


def check_state(plan: Plan, figures: RunFigures) -> None:
    """Check that a run read all its batches and kept all keys.

    Raises
    ------
    WrongStateError
        If it did not.
    """
    batches, keys = len(figures.batches), figures.batches[-1].state_rows if figures.batches else 0
    if batches != plan.batches or keys != plan.state_rows():
        raise WrongStateError(
            f"{figures.provider}: expected {plan.batches} batches and {plan.state_rows():,} keys "
            f"in the state, found {batches} batches and {keys:,} keys"
        )
