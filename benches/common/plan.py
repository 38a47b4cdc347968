"""The face of every benchmark to ``benches/run.py``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from common.report import Result
from harness.screen import Screen


class Plan(Protocol):
    """A plan of what to measure, and how."""

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""

    def measure(self, screen: Screen) -> Result:
        """Run all rounds.

        Raises
        ------
        BuildError
            If a Java part cannot be compiled.
        ChildError
            If a run fails.
        WrongStateError
            If a run ends with another state than its input has.
        """


PlanT = TypeVar("PlanT")


def of_cases(
    cases: Iterable[object], make: Callable[..., PlanT], options: Namespace, folder: Path
) -> Iterator[PlanT]:
    """Yield one plan for each case, by the options of ``benches/run.py``."""
    for case in cases:
        yield make(
            case=case,
            folder=folder,
            rounds=options.rounds,
            driver_memory=options.driver_memory,
            jfr=options.jfr,
        )
