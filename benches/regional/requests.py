"""Requests of a pipeline's checkpoints to the name node of HDFS, and to an object store."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.plan import of_cases
from common.recording import flight_recording
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target
from common.turns import run_turns

from harness.screen import RunLine, Screen

SPARK = "spark"
PLAIN = "plain"

REQUESTS = Metric(name="requests", title="requests per batch", decimals=1)
BEYOND = Metric(name="beyond", title="requests beyond plain, per executor and batch", decimals=1)
BATCH = Metric(name="batch_ms", title="batch time, ms")

METRICS = (REQUESTS, BEYOND, BATCH)

NOTES = (
    "Spark default: mapInArrow inside foreachBatch, which keeps nothing, without Holdfast. plain: "
    "the same with Holdfast's settings,\nby which Spark's logs cost less. Holdfast: a regional "
    "pipeline whose state lies in segments, with its output on a local disk.\nThe driver's "
    "requests count as the executors' do."
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Where the checkpoints lie, ``hdfs`` or ``s3``, and how many executors write them."""

    name: str
    title: str
    place: str
    executors: int
    targets: tuple[Target, ...] = ()


_AT_MOST_FIVE = (Target(metric=BEYOND, at_most=5),)

CASES = (
    Case(
        name="hdfs",
        title="an HDFS of one data node in another JVM, one executor (local[2])",
        place="hdfs",
        executors=1,
        targets=_AT_MOST_FIVE,
    ),
    Case(
        name="hdfs-2",
        title="the same HDFS, two executors of one core (local-cluster)",
        place="hdfs",
        executors=2,
        targets=_AT_MOST_FIVE,
    ),
    Case(
        name="s3",
        title="a server of the S3 protocol with 30 ms a request, one executor (local[2])",
        place="s3",
        executors=1,
        targets=_AT_MOST_FIVE,
    ),
    Case(
        name="s3-2",
        title="the same server, two executors of one core (local-cluster)",
        place="s3",
        executors=2,
        targets=_AT_MOST_FIVE,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a case is measured.

    Attributes
    ----------
    batches
        Batches of each variant in each round, after the warm-up.
    """

    case: Case
    folder: Path
    rounds: int
    driver_memory: str
    jfr: Path | None
    batches: int = 12
    warm_up: int = 4
    regions: int = 6
    rows_of_region: int = 100

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"requests, {self.case.name}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"checkpoints on {self.case.title}\n{self.regions} regions in 2 tasks; {self.rounds} "
            f"rounds of {self.batches} batches after {self.warm_up} to warm up; all take turns"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "place": self.case.place,
            "executors": self.case.executors,
            "regions": self.regions,
            "rows_of_region": self.rows_of_region,
            "rounds": self.rounds,
            "batches": self.batches,
            "warm_up": self.warm_up,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds of a case.

        Raises
        ------
        ChildError
            If a query fails, or a checkpoint is not global.
        """
        name = f"requests-{self.case.name}"
        (self.folder / name).mkdir()
        spec = {
            **self.to_json(),
            "folder": str(self.folder / name),
            "settings": flight_recording(self.jfr, name),
        }
        found: list[Mapping[str, Any]] = []

        def on_event(line: RunLine, kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "measured":
                found.append(fields)
                line.note(f"{fields['variant']}: {self._of_batch(fields):.1f} requests")

        run_turns(
            screen,
            self.case.title,
            Path(__file__).with_name("requests_child.py"),
            spec=spec,
            log=self.folder / f"{name}.log",
            on_event=on_event,
        )
        return Result(
            name=name,
            plan=self.to_json() | {"kinds": found},
            metrics=METRICS,
            bases=(SPARK,),
            targets=self.case.targets,
            runs=[self._run(fields, found) for fields in found],
            notes=NOTES,
        )

    def _of_batch(self, fields: Mapping[str, Any]) -> float:
        of_all: int = sum(fields["requests"].values())
        return of_all / self.batches

    def _run(self, fields: Mapping[str, Any], found: list[Mapping[str, Any]]) -> Run:
        requests = self._of_batch(fields)
        values = {REQUESTS.name: [requests], BATCH.name: fields["times_ms"]}
        if fields["variant"] == MEASURED:
            (plain,) = (
                other
                for other in found
                if other["variant"] == PLAIN and other["round"] == fields["round"]
            )
            values[BEYOND.name] = [(requests - self._of_batch(plain)) / self.case.executors]
        return Run(
            provider=fields["variant"],
            round_number=fields["round"],
            load=fields["load"],
            values=values,
        )


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each case, by the options of ``benches/run.py``."""
    yield from of_cases(CASES, Plan, options, folder)
