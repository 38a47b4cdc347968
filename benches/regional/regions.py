"""Very many regions on a cluster: from the last row of a batch to its published checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.recording import flight_recording
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target
from common.turns import run_turns

from harness.screen import RunLine, Screen

PUBLISH = Metric(name="publish_ms", title="last row to published checkpoint, ms")
BATCH = Metric(name="batch_ms", title="batch time, ms")
METADATA = Metric(name="metadata_kib", title="metadata, KiB")
HEAP = Metric(name="heap_mib", title="heap of the driver's JVM after a collection, MiB")
JVM = Metric(name="jvm_mib", title="resident memory of the driver's JVM, MiB")
PYTHON = Metric(name="python_mib", title="resident memory of the driver's Python, MiB")

METRICS = (PUBLISH, BATCH, METADATA, HEAP, JVM, PYTHON)

NOTES = (
    "From the moment at which the operator of the last region returned its last rows, by the clock "
    "of its worker, to the\nend of the attempt in the history, which the driver notes when the "
    "metadata is durable. The figures of memory are\nthose of single batches, in their order: they "
    "level off if the driver keeps nothing of older batches."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of pipelines with many regions.

    Attributes
    ----------
    every
        How many regions there are for one that puts out a row.
    """

    folder: Path
    batches: int
    warm_up: int
    driver_memory: str
    jfr: Path | None
    regions: int = 10_000
    rows_of_region: int = 4
    every: int = 1_000

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "regions"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.regions:,} regions of {self.rows_of_region} rows a batch in 2 tasks on 2 "
            f"executors of one core (local-cluster), each with an array of 256 bytes; one region "
            f"in {self.every:,} writes a file\n{self.batches} batches after {self.warm_up} to warm "
            f"up; heap of the driver {self.driver_memory}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "regions": self.regions,
            "rows_of_region": self.rows_of_region,
            "every": self.every,
            "batches": self.batches,
            "warm_up": self.warm_up,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all batches.

        Raises
        ------
        ChildError
            If the pipeline fails, or a checkpoint is not global.
        """
        spec = {
            "folder": str(self.folder / "regions"),
            "regions": self.regions,
            "rows_of_region": self.rows_of_region,
            "every": self.every,
            "batches": self.warm_up + self.batches,
            "driver_memory": self.driver_memory,
            "settings": flight_recording(self.jfr, "regions"),
        }
        runs = []

        def on_event(line: RunLine, kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "batch":
                line.note(f"{fields['publish_ms'] / 1000:.1f} s")
                if fields["number"] >= self.warm_up:
                    runs.append(_run(fields, fields["number"] - self.warm_up))

        run_turns(
            screen,
            f"{self.regions:,} regions",
            Path(__file__).with_name("regions_child.py"),
            spec=spec,
            log=self.folder / "regions.log",
            on_event=on_event,
        )
        return Result(
            name="regions",
            plan=self.to_json(),
            metrics=METRICS,
            targets=(Target(metric=PUBLISH, at_most=1_500),),
            runs=runs,
            notes=NOTES,
        )


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    yield Plan(
        folder=folder,
        batches=options.rounds,
        warm_up=3,
        driver_memory=options.driver_memory,
        jfr=options.jfr,
    )


def _run(fields: Mapping[str, Any], number: int) -> Run:
    values = {metric.name: [fields[metric.name]] for metric in METRICS}
    return Run(provider=MEASURED, round_number=number, load=fields["load"], values=values)
