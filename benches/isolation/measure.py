"""Single batches with and without isolation in turns, while nothing fails."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, WrongStateError
from common.targets import MEASURED, Target
from common.turns import run_turns

from harness.screen import RunLine, Screen

_CHILD = Path(__file__).with_name("child.py")
_WITHOUT = "not isolated"
_NAMES = {"isolated": MEASURED, "plain": _WITHOUT}

BATCH = Metric(name="batch_ms", title="batch time, ms")
TARGETS = (Target(metric=BATCH, at_most=1.01, to=_WITHOUT),)
NOTES = (
    "Both queries run in one application and take turns batch by batch; in each pair the other one"
    " is first. A round\nis a pair. The batches of the warm-up are left out."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many batches of two queries are compared.

    Attributes
    ----------
    pairs, warm_up
        Batches of each query that count, and batches before them.
    """

    folder: Path
    partitions: int
    pairs: int
    warm_up: int
    rows: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"isolation-{self.partitions}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"groupBy(key).count(): {self.partitions} partitions, {self.rows:,} rows a batch, noop "
            f"sink, local[2,4], one JVM (heap {self.driver_memory})\n"
            f"{self.pairs} pairs of batches with and without isolation, behind {self.warm_up}"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all pairs.

        Raises
        ------
        ChildError
            If the application fails.
        WrongStateError
            If a batch is not the one of its pair.
        """
        load = os.getloadavg()[0]
        runs: list[Run] = []

        def take(line: RunLine, kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "done":
                return
            if fields["rows"] != self.rows:
                raise WrongStateError(f"{self.title}: expected {self.rows:,} rows, found {fields}")
            line.note(f"pair {fields['pair'] + 1} of {self.pairs}")
            if fields["pair"] >= 0:
                values = {BATCH.name: [float(fields["ms"])]}
                provider = _NAMES[fields["name"]]
                runs.append(
                    Run(provider=provider, round_number=fields["pair"], load=load, values=values)
                )

        folder = self.folder / self.title
        folder.mkdir()
        plan = {
            "partitions": self.partitions,
            "pairs": self.pairs,
            "warm_up": self.warm_up,
            "rows": self.rows,
            "driver_memory": self.driver_memory,
        }
        spec = {**plan, "names": list(_NAMES), "folder": str(folder)}
        log = self.folder / f"{self.title}.log"
        run_turns(screen, self.title, _CHILD, spec=spec, log=log, on_event=take)
        return Result(
            name=self.title,
            plan=plan,
            metrics=(BATCH,),
            targets=TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(_WITHOUT,),
        )


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield what to measure, by the options of ``benches/run.py``."""
    for partitions, pairs in ((20, 60), (200, 30)):
        yield Plan(
            folder=folder,
            partitions=partitions,
            pairs=10 if options.quick else pairs,
            warm_up=10,
            rows=20_000,
            driver_memory="2g",
        )
