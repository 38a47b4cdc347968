"""From the answers of regions to answers that the driver may receive, because all is durable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias

from holdfast._core import Staged
from holdfast.regions.base.problem import Cause
from holdfast.regions.coordinator import Acked
from holdfast.regions.sinks.sink import OutputStore
from holdfast.regions.task.region.answer import Answered
from holdfast.regions.task.region.output import persisted, staged_together
from holdfast.regions.task.region.region import TaskContext
from holdfast.regions.task.region.run import RegionRun

LOG: Final = logging.getLogger(__name__)

#: Encoded acknowledgements that count together: they are one message.
ANSWERS_BYTES: Final = 16 << 20

Answers: TypeAlias = Mapping[RegionRun, Answered]


class DurableAnswers:
    """Makes answers durable. A region whose acknowledgement cannot be kept declines.

    Acknowledgements of regions that share output wait until it is durable, too. These regions
    acknowledge together, so that each file is in a checkpoint as a whole. Regions whose rows cannot
    be written are excluded first.
    """

    def __init__(self, task: TaskContext, store: OutputStore | None) -> None:
        self._task = task
        self._store = store
        self._since_ms = task.begun_ms
        self._bytes: Counter[str | None] = Counter()
        self.waiting: dict[RegionRun, Answered] = {}

    def of(self, runs: Iterable[RegionRun]) -> Answers:
        """Return the answers of these regions, durable but for output that they share."""
        answers = {run: run.settled() for run in runs}
        causes: dict[RegionRun, Cause] = {}
        for plan in self._task.plan.outputs:
            staged = {
                run: output
                for run, answer in answers.items()
                for output in answer.outputs
                if output.plan is plan and not output.rows
            }
            found = persisted(plan, list(staged.values()), self._store)
            causes |= {run: one for run, one in zip(staged, found, strict=True) if one is not None}
        return {run: self._durable(run, answer, causes.get(run)) for run, answer in answers.items()}

    def _durable(self, run: RegionRun, answer: Answered, cause: Cause | None) -> Answered:
        """Return an answer with durable segments: the same if they are and there is no `cause`."""
        while cause is not None or not self._persist(answer):
            for owner, refs in answer.segments:
                self._task.store.release(owner, refs)
            if isinstance(answer.event, Acked):
                cause = cause or Cause("its snapshot could not be made durable")
                answer, cause = run.decline(answer, cause), None
            else:
                return replace(answer, event=replace(answer.event, in_flight=()))
        return answer

    def _persist(self, answer: Answered) -> bool:
        # The first of several waits for storage; its wait covers earlier writes of the others.
        try:
            for owner, refs in answer.segments:
                self._task.store.persist_segments(self._task.order.attempt, owner, refs)
        except OSError:
            LOG.warning(
                "attempt %d: segments are not durable", self._task.order.attempt, exc_info=True
            )
            return False
        return True

    def wait(self, run: RegionRun, answer: Answered, now_ms: int) -> None:
        """Take an acknowledgement that waits for others, with its rows."""
        if not self.waiting:
            self._since_ms = now_ms
        self.waiting[run] = answer
        if isinstance(acked := answer.event, Acked):
            self._bytes[None] += len(acked.entry.to_bytes()) + sum(len(e) for _, e in acked.events)
        for output in answer.outputs:
            self._bytes[output.plan.name] += output.nbytes if output.rows else 0

    @property
    def is_full(self) -> bool:
        """True if enough acknowledgements wait."""
        return (
            len(self.waiting) >= self._task.plan.options.share_regions
            or self._bytes[None] >= ANSWERS_BYTES
            or any(
                self._bytes[one.name] >= one.sink.shared_bytes > 0
                for one in self._task.plan.outputs
            )
        )

    def is_late(self, now_ms: int) -> bool:
        """Return whether the first one has waited for long enough."""
        options = self._task.plan.options
        allowed_ms = max(
            options.share_wait_ms, (now_ms - self._task.begun_ms) // options.share_ratio
        )
        return bool(self.waiting) and now_ms - self._since_ms >= allowed_ms

    def flush(self) -> tuple[Answers, Answers]:
        """Write files of waiting regions; returns answers that count together, and declines."""
        waiting = dict(sorted(self.waiting.items(), key=lambda item: item[0].region))
        self.waiting = {}
        self._bytes.clear()
        causes: dict[str, Cause] = {}
        while True:
            together = {run: one for run, one in waiting.items() if run.region not in causes}
            staged, failed = self._write(together)
            if not failed:
                break
            causes |= failed
        # The answers live as long as the task, but the rows need not.
        for output in chain.from_iterable(answer.outputs for answer in waiting.values()):
            output.rows.clear()
        acked = {run: answer.with_files(staged[run.region]) for run, answer in together.items()}
        declined = {
            run: self._durable(run, answer, causes[run.region])
            for run, answer in waiting.items()
            if run.region in causes
        }
        return acked, declined

    def _write(self, answers: Answers) -> tuple[Mapping[str, list[Staged]], Mapping[str, Cause]]:
        """Write the rows for each output, or return the regions because of which one failed."""
        staged: dict[str, list[Staged]] = {run.region: [] for run in answers}
        for plan in self._task.plan.outputs:
            parts = {
                run.region: output
                for run, answer in answers.items()
                for output in answer.outputs
                if output.plan is plan and output.rows
            }
            found = (
                staged_together(plan, parts, self._task.order.attempt, self._store) if parts else {}
            )
            if failed := {name: one for name, one in found.items() if isinstance(one, Cause)}:
                return staged, failed
            for name, one in found.items():
                if isinstance(one, Staged):
                    staged[name].append(one)
        return staged, {}
