"""What all benchmarks are to ``benches/run.py``."""

from __future__ import annotations

from typing import Protocol

from common.report import Result
from harness.screen import Screen


class Plan(Protocol):
    """What to measure, and how."""

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
