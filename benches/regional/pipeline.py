"""Regional pipelines on Spark: what checkpoints cost, and what a region in trouble costs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.plan import of_cases
from common.recording import flight_recording
from common.report import Result
from common.rounds import Metric, Run, WrongStateError
from common.targets import MEASURED, Target
from common.turns import run_turns

from harness.screen import RunLine, Screen
from regional.workload import TASKS, region_names, write_input

BATCH = Metric(name="batch_ms", title="batch time, ms")
CPU = Metric(name="cpu_s", title="CPU s per batch", decimals=2)
GOODPUT = Metric(
    name="goodput", title="rows of healthy regions in the output, per second", more_is_better=True
)
PER_ROW = Metric(name="ms_per_million", title="ms per million such rows")
OF_TIMEOUT = Metric(name="of_timeout", title="batch time / aligned_timeout", decimals=2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case: pipelines that take turns.

    Attributes
    ----------
    name
        Name of the function in `regional.child` that knows the pipelines.
    bases
        Pipelines that ratios are taken to.
    rows
        Per batch, over all regions.
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    bases: tuple[str, ...]
    targets: tuple[Target, ...]
    notes: str
    rows: int = 2_048_000


CASES = (
    Case(
        name="healthy",
        title="all regions healthy",
        metrics=(BATCH, CPU),
        bases=("plain", "plain, Spark writes"),
        targets=(Target(metric=BATCH, at_most=1.05, to="plain, Spark writes"),),
        notes=(
            "plain: the operator's work in mapInArrow inside foreachBatch, on the same rows, which "
            "writes files with the same\nencoder: one for each region and batch, zstd. It has no "
            "state, no checkpoint, and syncs nothing.\nplain, Spark writes: the rows go to Spark, "
            "which writes one file for each task, as holdfast does."
        ),
    ),
    Case(
        name="failing",
        title="one region fails in every batch",
        metrics=(GOODPUT, PER_ROW, BATCH, CPU),
        bases=("undisturbed",),
        # A goodput of at least 0.98 times the undisturbed one.
        targets=(Target(metric=PER_ROW, at_most=1 / 0.98, to="undisturbed"),),
        notes=(
            "holdfast: one region raises at its first row in every batch, and its rows are stored; "
            "limits on failures in a row\nare lifted. global only: with max_consecutive_failures=0 "
            "the query fails and not one row is published."
        ),
    ),
    Case(
        name="quarantine",
        title="one region is in quarantine",
        metrics=(BATCH, CPU, PER_ROW),
        bases=("undisturbed",),
        targets=(Target(metric=BATCH, at_most=1.02, to="undisturbed"),),
        notes=(
            "holdfast: one region failed in the first batches of the warm-up. It runs no operator "
            "any more, and its rows are stored."
        ),
    ),
    Case(
        name="many",
        title="2,048 regions",
        metrics=(BATCH, CPU),
        bases=("64 regions",),
        targets=(Target(metric=BATCH, at_most=1.3, to="64 regions"),),
        notes=(
            "holdfast: 2,048 regions of 1,000 rows a batch. 64 regions: the same number of rows. A "
            "task writes one file. a file\nfor each region: 2,048 regions with per_region=True."
        ),
    ),
    Case(
        name="slow",
        title="one region needs ten times as long for its rows as the whole batch takes",
        metrics=(OF_TIMEOUT, BATCH, CPU),
        bases=("undisturbed",),
        targets=(Target(metric=OF_TIMEOUT, at_most=1.1),),
        notes=(
            "aligned_timeout is twice the time of an undisturbed batch in the same run. The slow "
            "region waits for every row,\nas for a service. undisturbed: without that, and without "
            "a timeout."
        ),
    ),
)


BY_KEY = Case(
    name="by_key",
    title="a sum for each key",
    metrics=(BATCH, CPU),
    bases=("transformWithState",),
    # Ten times the rows per second.
    targets=(Target(metric=BATCH, at_most=0.1, to="transformWithState"),),
    notes=(
        "holdfast: a table by key in each region. transformWithState: Spark's operator in "
        "Python, by region and key, on\nRocksDB with changelog. A batch changes all keys."
    ),
    rows=128_000,
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a case is measured.

    Attributes
    ----------
    run_rows
        Rows of one region that follow each other in a file.
    """

    case: Case
    folder: Path
    rounds: int
    driver_memory: str
    jfr: Path | None
    regions: int = 64
    many_regions: int = 2_048
    run_rows: int = 1_000
    warm_up: int = 8

    @property
    def rows(self) -> int:
        """Rows of a batch, over all regions."""
        return self.case.rows

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"pipeline, {self.case.name}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"{self.case.title}: {self.rows:,} rows of 6 columns a batch, {self.regions} regions "
            f"in {TASKS} files and tasks, in runs of {self.run_rows:,}\n"
            f"{self.rounds} rounds of one batch each; the pipelines take turns in one JVM (heap "
            f"{self.driver_memory}), local[2], after {self.warm_up} batches to warm up"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "case": self.case.name,
            "rows": self.rows,
            "regions": self.regions,
            "run_rows": self.run_rows,
            "rounds": self.rounds,
            "warm_up": self.warm_up,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds of a case.

        Raises
        ------
        ChildError
            If a pipeline fails that should not.
        WrongStateError
            If one put out another number of rows than its input asks for.
        """
        name = f"pipeline-{self.case.name}"
        folder = self.folder / name
        size: dict[str, int] = {"rows": self.rows, "run_rows": self.run_rows}
        spec = {
            "case": self.case.name,
            "files": write_input(folder / "rows", regions=self.regions, **size),
            "folder": str(folder / "runs"),
            "rows": self.rows,
            "rows_of_region": self.rows // self.regions,
            "region": region_names(self.regions)[1],
            "rounds": self.rounds,
            "warm_up": self.warm_up,
            "timeout_batches": 2,
            "slower": 10,
            "driver_memory": self.driver_memory,
            "settings": flight_recording(self.jfr, name),
        }
        if self.case.name == "many":
            many = write_input(folder / "many", regions=self.many_regions, **size)
            spec["files_of_many"] = many
        runs = []
        timeout_ms = 0.0

        def on_event(line: RunLine, kind: str, fields: Mapping[str, Any]) -> None:
            nonlocal timeout_ms
            if kind == "timeout":
                timeout_ms = fields["ms"]
            elif kind == "batch" and fields["round"] is not None:
                runs.append(_run(self, fields, timeout_ms))
                line.note(f"{fields['variant']}: {fields['batch_ms'] / 1000:.1f} s")

        run_turns(
            screen,
            self.case.title,
            Path(__file__).with_name("child.py"),
            spec=spec,
            log=self.folder / f"{name}.log",
            on_event=on_event,
        )
        return Result(
            name=name,
            plan=self.to_json(),
            metrics=self.case.metrics,
            bases=self.case.bases,
            targets=self.case.targets,
            runs=runs,
            notes=self.case.notes,
        )


def plans(cases: Iterable[Case], options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each case, by the options of ``benches/run.py``."""
    yield from of_cases(cases, Plan, options, folder)


def _run(plan: Plan, fields: Mapping[str, Any], timeout_ms: float) -> Run:
    variant, batch_ms, rows = fields["variant"], fields["batch_ms"], fields["rows"]
    of_one = plan.rows // plan.regions
    expected: Sequence[int] = (plan.rows,)
    if variant == "global only":
        expected = (0,)
    elif variant == MEASURED and plan.case.name in ("failing", "quarantine"):
        expected = (plan.rows - of_one,)
    elif variant == MEASURED and plan.case.name == "slow":
        expected = range(plan.rows - of_one, plan.rows + 1)
    if rows not in expected:
        raise WrongStateError(
            f"{plan.case.name}, {variant}: expected {expected[0]:,} to {expected[-1]:,} rows in "
            f"the output of a batch, found {rows:,}"
        )
    healthy = min(rows, plan.rows - of_one)
    values = {BATCH.name: [batch_ms], GOODPUT.name: [healthy / batch_ms * 1e3]}
    if "cpu_s" in fields:
        values[CPU.name] = [fields["cpu_s"]]
    if healthy:
        values[PER_ROW.name] = [batch_ms / healthy * 1e6]
    if variant == MEASURED and timeout_ms:
        values[OF_TIMEOUT.name] = [batch_ms / timeout_ms]
    return Run(provider=variant, round_number=fields["round"], load=fields["load"], values=values)
