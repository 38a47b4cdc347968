"""Logs why regions failed while their pipeline goes on."""

from __future__ import annotations

import logging
from typing import Final

from holdfast.regions.base.problem import Problem

LOG: Final = logging.getLogger(__name__)


class ProblemLog:
    """Gathers the exceptions of an attempt, and writes each trace once."""

    def __init__(self) -> None:
        self._found: dict[str, Problem] = {}
        self._shown: set[tuple[str, str, str, str]] = set()

    def begin(self) -> None:
        """Begin with an attempt."""
        self._found.clear()

    def note(self, region: str, problem: Problem) -> None:
        """Keep the exception of a region in the attempt."""
        self._found[region] = problem

    def show(self, attempt: int) -> None:
        """Write a line for each kind of exception, with its trace the first time."""
        found, self._found = self._found, {}
        for problem in {problem.kind: problem for problem in found.values()}.values():
            alike = sorted(region for region, other in found.items() if other.kind == problem.kind)
            more = f" (and {len(alike) - 1} regions more)" if len(alike) > 1 else ""
            trace = "" if problem.kind in self._shown else "\n" + problem.trace.rstrip()
            self._shown.add(problem.kind)
            LOG.warning("%s%s%s", found[alike[0]].headline(alike[0], attempt), more, trace)
