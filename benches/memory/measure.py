"""Native memory of one JVM over many batches: does it level, or does something leak?"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, in_rounds

from harness.process import SparkChild
from harness.providers import TITLES
from harness.screen import Screen

_HERE = Path(__file__).parent
_SILENCE_S = 600.0
_KIB_PER_MIB = 1024
_PARTS = 6

END = Metric(name="end_mib", title="beyond the heap in the end, MiB")
TRIMMED = Metric(name="trimmed_mib", title="the same, without what malloc keeps, MiB")
GROWTH = Metric(name="growth_kib", title="growth in the second half, KiB a batch", decimals=1)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of the memory of queries.

    Attributes
    ----------
    partitions, keys
        Partitions and keys of an aggregation whose batches change every key.
    batches, every
        Batches of a run, and after how many of them its memory is looked at.
    """

    folder: Path
    providers: tuple[str, ...]
    rounds: int
    partitions: int
    keys: int
    batches: int
    every: int

    @property
    def stations(self) -> tuple[int, ...]:
        """Batches after which the table shows the memory."""
        looks = self.batches // self.every
        shown = {looks * part // _PARTS for part in range(1, _PARTS + 1)} - {0}
        return tuple(self.every * look for look in sorted(shown))

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "memory"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"groupBy(key).count(): {self.partitions} partitions, {self.keys:,} keys, all changed "
            f"by every batch, {self.batches:,} batches without a pause, local[2]\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            "a fresh JVM with a heap of 1 GiB that is resident from the start"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails.
        """
        curves: list[dict[str, Any]] = []
        with screen.runs():
            runs = list(
                in_rounds(
                    self.providers,
                    self.rounds,
                    lambda provider, number: _run(self, screen, provider, number, curves),
                )
            )
        described = {key: value for key, value in asdict(self).items() if key != "folder"}
        return Result(
            name="memory",
            plan={**described, "curves": curves},
            metrics=(*map(station, self.stations), END, TRIMMED, GROWTH),
            targets=(),
            runs=runs,
            notes=NOTES,
        )


NOTES = (
    "Beyond the heap: resident memory of the JVM without its heap, that is also its classes, "
    "compiled code, threads and tracking.\nThe result file has what the JVM says of each part."
)


def station(batch: int) -> Metric:
    """Return the memory after a batch as a metric."""
    return Metric(name=f"mib_{batch}", title=f"beyond the heap, batch {batch:,}, MiB")


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        providers=tuple(options.providers),
        rounds=options.rounds,
        partitions=20,
        keys=1_000,
        batches=options.memory_batches or (300 if options.quick else 3_000),
        every=50,
    )


def _run(
    plan: Plan, screen: Screen, provider: str, round_number: int, curves: list[dict[str, Any]]
) -> Run:
    checkpoint = plan.folder / "memory-checkpoint"
    spec: dict[str, Any] = {
        "provider": provider,
        "partitions": plan.partitions,
        "keys": plan.keys,
        "batches": plan.batches,
        "every": plan.every,
        "driver_memory": "1g",
        "checkpoint": str(checkpoint),
    }
    line = screen.run(f"round {round_number + 1}, {TITLES[provider]}", rows=None)
    load = os.getloadavg()[0]
    samples: list[Mapping[str, Any]] = []
    trimmed: Mapping[str, Any] = {}
    command = [str(_HERE / "child.py")]
    with SparkChild(command, spec=spec, log=plan.folder / f"{provider}.log") as child:
        for kind, fields in child.events(silence_s=_SILENCE_S):
            if kind == "sample":
                samples.append(fields)
                line.note(f"batch {fields['batch']:,}")
            elif kind == "trimmed":
                trimmed = fields
    line.finish("done")
    shutil.rmtree(checkpoint)
    curves.append(
        {"provider": provider, "round": round_number, "samples": samples, "trimmed": trimmed}
    )
    values = dict(figures(plan, samples))
    values[TRIMMED.name] = [trimmed["beyond_heap_kib"] / _KIB_PER_MIB]
    return Run(provider=provider, round_number=round_number, load=load, values=values)


def figures(plan: Plan, samples: Sequence[Mapping[str, Any]]) -> Mapping[str, Sequence[float]]:
    """Return the memory on the way and in the end, and how it grew in the second half.

    A sample comes a batch or more after it was due: it counts for the station before it.
    """
    found: dict[str, Sequence[float]] = {}
    for batch in plan.stations:
        due = next((one for one in samples if one["batch"] >= batch), samples[-1])
        found[station(batch).name] = [due["beyond_heap_kib"] / _KIB_PER_MIB]
    half = [one for one in samples if one["batch"] * 2 >= samples[-1]["batch"]]
    found[END.name] = [samples[-1]["beyond_heap_kib"] / _KIB_PER_MIB]
    found[GROWTH.name] = [
        slope([(one["batch"], one["beyond_heap_kib"]) for one in half]) if len(half) > 1 else 0.0
    ]
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line through the points that has the least squares of errors."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
