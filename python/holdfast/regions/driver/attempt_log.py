"""Records how attempts ended: in the history, in figures and in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from holdfast._core import RegionEntry
from holdfast.regions.base.problem import Problem
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.history import HistoryLog
from holdfast.regions.coordinator import CheckpointCoordinator, Ended, FailedRegion
from holdfast.regions.coordinator.evaluation import names
from holdfast.regions.driver.metrics import MetricsLog
from holdfast.regions.driver.task_runner import TaskRunner

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


class AttemptLog:
    """The records of one run of a pipeline."""

    def __init__(self, history: HistoryLog, metrics: MetricsLog, runner: TaskRunner) -> None:
        self.history = history
        self.metrics = metrics
        self.problems = ProblemLog()
        self._runner = runner
        self._noted = 0

    def note(self, machine: CheckpointCoordinator, *, skipped_splits: int) -> None:
        """Keep attempts that have ended."""
        for record in machine.history:
            if record.id > self._noted:
                self._noted = record.id
                self.history.note(record)
                held = [machine.entries[region] for region in machine.quarantined]
                self.metrics.ended(record, held)
                self._runner.show_metrics({**self.metrics.sums(), "skippedSplits": skipped_splits})
                self._runner.show_attempt(record)

    def completed(
        self, ended: Ended, failed: tuple[FailedRegion, ...], entries: Mapping[str, RegionEntry]
    ) -> None:
        """Log the regions that failed in a checkpoint, and those that it drops."""
        if failed:
            self.problems.show(ended.attempt)
        for one in failed:
            if in_quarantine(entry := entries[one.region]):
                LOG.warning(
                    "region %r is in quarantine, with the state of checkpoint %d: it fell back %d "
                    "times in a row. Its rows are stored until it is repaired: %s",
                    one.region,
                    entry.origin,
                    entry.fallbacks,
                    one.cause,
                )
        if ended.retired:
            count, some = len(ended.retired), names(ended.retired)
            LOG.info("checkpoint %d drops %d idle regions: %s", ended.attempt, count, some)
