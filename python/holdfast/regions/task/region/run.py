"""One region in one attempt: from its base and its rows to an acknowledgement or a decline."""

from __future__ import annotations

import threading
from functools import partial

from holdfast._core import RegionEntry
from holdfast.regions.base.problem import Cause
from holdfast.regions.base.turns import work_for
from holdfast.regions.task.instance import Instances, close_instances
from holdfast.regions.task.region.answer import (
    Answered,
    Failed,
    Phase,
    Quarantined,
    Work,
    declined,
)
from holdfast.regions.task.region.open import Opening
from holdfast.regions.task.region.region import Region, TaskContext
from holdfast.regions.task.threads import RegionThread


class RegionRun:
    """Runs the operators of one region, one step at a time.

    Another thread may fill `feed`, and call `expire` and `decline`. Only the region's thread calls
    `step` and `abandon`. `base` and `cached` are as in `Region` and `Opening`. `answer` is None
    until the region has answered.
    """

    def __init__(
        self,
        task: TaskContext,
        region: str,
        base: RegionEntry | None,
        *,
        thread: RegionThread,
        cached: Instances | None,
    ) -> None:
        self.region = region
        self.thread = thread
        self.answer: Answered | None = None
        self._lock = threading.Lock()
        ended = base is not None and base.finished
        restarts = task.plan.options.restart_finished
        if ended and cached is not None:
            thread.do(partial(close_instances, cached))
            cached = None
        if base is not None and ended and restarts:
            # It begins without state, and with the rows that it could not process since (R64).
            base = RegionEntry(region, origin=base.origin, in_flight=base.in_flight)
        self._region = Region(task, region, base)
        self.feed = self._region.feed
        self._phase: Phase = Opening(self._region, cached)
        if base is not None and ended and not restarts:
            # R60. The driver ends the query when it learns that there are rows.
            cause = Cause(f"its data ended in checkpoint {base.origin}")
            self._phase = Failed(self._region, cause)
        elif base is not None and region in task.order.quarantined:
            self._phase = Quarantined(self._region, base)

    def step(self, now_ms: int) -> bool:
        """Do one unit of work; False if there is none before more input, or none at all."""
        if self.answer is not None:
            return False
        work_for(self._region.task.plan.run)
        try:
            if self.feed.error is not None and not isinstance(self._phase, Failed):
                raise self.feed.error
            found = self._phase.step(now_ms)
        except BaseException as e:
            # Also SystemExit of an operator: the thread is not its own. The error of a split names
            # it; rows of others are not to blame.
            rows = "" if e is self.feed.error else self.feed.under_way.named()
            found = Failed(self._region, Cause.of(e, rows), self._let_go())
        if isinstance(found, Answered):
            self._phase = Phase()
            self._settle(found)
            return True
        if found is Work.AGAIN:
            self._let_go()
            found = Opening(self._region, None, again=True)
        if isinstance(found, Phase):
            self._phase = found
        return found is not Work.WAITS

    @property
    def has_all_rows(self) -> bool:
        """True if all rows of this batch were fed: a few steps lead to the answer."""
        return self.feed.ended and not self.feed.waits

    def expire(self, cause: str) -> None:
        """Decline in place of a thread that may hang in `step` for ever; call it after `feed.end`.

        Operators and output that the thread uses are left alone: staged output of ended attempts is
        swept, and these operators are never used again.
        """
        phase = self._phase
        if not isinstance(phase, Failed) and (rows := self.feed.under_way.named()):
            cause = f"{cause} (with {rows})"
        self._settle(declined(self._region, Cause(cause), phase.figures()))

    def settled(self) -> Answered:
        """Return the answer of a region that has one."""
        if self.answer is None:
            raise AssertionError(f"region {self.region!r} was delivered without an answer")
        return self.answer

    def decline(self, answer: Answered, cause: Cause) -> Answered:
        """Decline instead of an acknowledgement that cannot be kept, because storage failed.

        No checkpoint's metadata has its staged output, so it is swept later.
        """
        for output in answer.outputs:
            output.discard()
        if answer.keep is not None:
            self.thread.do(partial(close_instances, answer.keep))
        return declined(self._region, cause, answer.figures)

    def abandon(self) -> None:
        """Close operators and output: the attempt ended before the region answered."""
        self._let_go()
        if self.answer is not None and self.answer.keep is not None:
            close_instances(self.answer.keep)

    def _let_go(self) -> bytes:
        """Discard the output, and close the operators; returns their figures."""
        self._region.discard_output()
        return self._phase.close()

    def _settle(self, answer: Answered) -> None:
        """Only the first answer counts: `expire` and `step` may both have one."""
        with self._lock:
            if self.answer is None:
                self.answer = answer
                return
        for output in answer.outputs:
            output.discard()
        if answer.keep is not None:
            close_instances(answer.keep)
