"""Whole queries on Holdfast and on Spark's configurations, each run in a fresh JVM."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.recording import flight_recording
from common.report import Result
from common.rounds import Run, WrongStateError, in_rounds

from harness.figures import BatchFigures
from harness.objects import HOW_COUNTED
from harness.process import SparkChild, cpu_of_session
from harness.providers import TITLES
from harness.screen import Screen
from spark.cases import METRICS, Case
from spark.places import Site, open_site
from spark.queries import write_input

_SILENCE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a case is measured.

    Attributes
    ----------
    rounds
        In each round every provider runs once, each in a fresh JVM; the order is rotated
        from round to round.
    batches
        Batches per run, those of the warm-up included.
    warm_up
        Batches at the start of a run that are dropped from the times, at least 1. The JVM's
        compiler still works in the first ten.
    jfr
        Folder for flight recordings; None for none.
    """

    case: Case
    folder: Path
    providers: tuple[str, ...]
    rounds: int
    batches: int
    warm_up: int
    driver_memory: str
    jfr: Path | None

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return self.case.name

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        case = self.case
        return (
            f"{case.query.title}: {case.partitions} partitions, {case.rows:,} rows a batch, up to "
            f"{case.keys:,} keys, checkpoint in {case.place.value}\n"
            f"parquet source, noop sink, AvailableNow with one file a batch, local[2], AQE off\n"
            f"{self.rounds} rounds x {len(self.providers)} providers in rotated order, each run in "
            f"a fresh JVM (heap {self.driver_memory}); {self.batches} batches a run, the first "
            f"{self.warm_up} dropped from the times"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "query": self.case.query.name,
            "partitions": self.case.partitions,
            "rows": self.case.rows,
            "keys": self.case.keys,
            "place": self.case.place.value,
            "providers": self.providers,
            "rounds": self.rounds,
            "batches": self.batches,
            "warm_up": self.warm_up,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        ChildError
            If a run fails.
        WrongStateError
            If the state of a run has another number of rows than its input asks for.
        """
        case = self.case
        data = self.folder / f"{case.name}-input"
        write_input(data, case.query, batches=self.batches, rows=case.rows, keys=case.keys)
        with open_site(case.place, self.folder / case.name) as site, screen.runs():

            def run(provider: str, round_number: int) -> Run:
                return _run(self, screen, site, data, provider, round_number)

            runs = list(in_rounds(self.providers, self.rounds, run))
        return Result(
            name=case.name,
            plan=self.to_json(),
            metrics=METRICS,
            targets=case.targets,
            runs=runs,
            notes=NOTES,
        )


NOTES = (
    "commitTimeMs and allUpdatesTimeMs are summed over tasks. Per batch: all of a run, divided by "
    f"its batches, those of the warm-up included, but for CPU.\n{HOW_COUNTED}."
)


def plans(cases: Sequence[Case], options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each case that is asked for, by the options of ``benches/run.py``."""
    for case in cases:
        if options.query in (None, case.query.name):
            yield Plan(
                case=case,
                folder=folder,
                providers=tuple(options.providers),
                rounds=options.rounds,
                batches=options.batches * case.batches_per_run,
                warm_up=options.warm_up,
                driver_memory=options.driver_memory,
                jfr=options.jfr,
            )


def _run(
    plan: Plan, screen: Screen, site: Site, data: Path, provider: str, round_number: int
) -> Run:
    case = plan.case
    name = f"{provider}-{round_number}"
    spec = {
        "query": case.query.name,
        "provider": provider,
        "partitions": case.partitions,
        "driver_memory": plan.driver_memory,
        "settings": {
            **site.settings,
            **flight_recording(plan.jfr, f"{case.name}-{provider}-{round_number}"),
        },
        "data": str(data),
        "checkpoint": site.checkpoint(name),
    }
    title = f"round {round_number + 1}, {TITLES[provider]}"
    line = screen.run(title, rows=case.rows * plan.batches)
    load = os.getloadavg()[0]
    operations = site.operations()
    batches = []
    cpu = []
    command = [str(Path(__file__).with_name("child.py"))]
    with SparkChild(command, spec=spec, log=plan.folder / f"{provider}.log") as child:
        for kind, fields in child.events(silence_s=_SILENCE_S):
            if kind == "batch":
                batches.append(BatchFigures(**fields))
                cpu.append(cpu_of_session(child.session))
                line.batch(batches[-1])
    line.finish("done")
    check_state(plan, provider, batches)
    values = dict(figures(batches, warm_up=plan.warm_up))
    values["cpu_s"] = [(cpu[-1] - cpu[plan.warm_up - 1]) / (len(cpu) - plan.warm_up)]
    if operations is not None:
        values["operations"] = [((site.operations() or 0) - operations) / len(batches)]
    objects = site.objects(name)
    values["objects"] = [objects.files / len(batches)]
    values["kib"] = [objects.files_bytes / len(batches) / 1024]
    return Run(provider=provider, round_number=round_number, load=load, values=values)


def figures(batches: Sequence[BatchFigures], *, warm_up: int) -> Mapping[str, Sequence[float]]:
    """Return the times of the batches after the warm-up."""
    measured = batches[warm_up:]
    return {
        "commit_ms": [batch.commit_ms for batch in measured],
        "updates_ms": [batch.updates_ms for batch in measured],
        "batch_ms": [batch.batch_ms for batch in measured],
    }


def check_state(plan: Plan, provider: str, batches: Sequence[BatchFigures]) -> None:
    """Check that a run read all its batches and kept all its state.

    Raises
    ------
    WrongStateError
        If it did not.
    """
    case = plan.case
    expected = case.query.state_rows(rows=case.rows * plan.batches, keys=case.keys)
    found = batches[-1].state_rows if batches else 0
    if len(batches) != plan.batches or found != expected:
        raise WrongStateError(
            f"{case.name} on {provider}: expected {plan.batches} batches and {expected:,} rows "
            f"in the state, found {len(batches)} batches and {found:,} rows"
        )
