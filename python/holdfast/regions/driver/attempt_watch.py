"""The answers of an attempt's tasks, as events for the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from holdfast.regions.base.errors import (
    LayoutChangedError,
    RegionFinishedError,
    RegionInTwoTasksError,
)
from holdfast.regions.base.saved import StateChangedError
from holdfast.regions.coordinator import (
    Acked,
    AckedTogether,
    Declined,
    Event,
    RegionStarted,
    RunAttempt,
)
from holdfast.regions.driver.metrics import MetricsLog
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder

LOG: Final = logging.getLogger(__name__)

_STATE_CHANGED: Final = StateChangedError.__module__, StateChangedError.__qualname__


class AttemptWatch:
    """Knows where each region of an attempt was seen, and keeps the figures of operators."""

    def __init__(self, action: RunAttempt, retained: Sequence[int], metrics: MetricsLog) -> None:
        self.attempt = action.attempt
        self._finished = action.finished
        self._retained = retained
        self._metrics = metrics
        self.partitions: dict[str, int] = {}
        self.answered: set[str] = set()

    def events(
        self, given: Generator[Answer, None, None], order: AttemptOrder, *, owed: bool = False
    ) -> Generator[Event, None, None]:
        """Turn answers to an order into events.

        A region that is in two partitions or has finished is an error, unless it only replays
        `owed` rows. So is a region whose state is declared in another form: no checkpoint may mix
        both forms (R78).
        """
        together: list[Answer] = []
        with closing(given):
            for answer in given:
                event, region = answer.event, answer.event.region
                if event.attempt != self.attempt:
                    LOG.info("region %r answers for attempt %d late", region, event.attempt)
                    continue
                seen_in = self.partitions.setdefault(region, answer.partition)
                if not owed and seen_in != answer.partition:
                    raise RegionInTwoTasksError(region, seen_in, answer.partition)
                if not owed and region in self._finished:
                    finished = self._finished[region]
                    older = max((id for id in self._retained if id < finished), default=None)
                    raise RegionFinishedError(region, finished, older)
                problem = event.problem if isinstance(event, Declined) else None
                if problem is not None and (problem.module, problem.name) == _STATE_CHANGED:
                    text = problem.headline(region, self.attempt)
                    raise LayoutChangedError(text) from problem.error()
                if answer.with_next or together:
                    together.append(answer)
                    if not answer.with_next:
                        yield self._event_of_all(together)
                        together = []
                else:
                    yield self._event(answer, order, owed=owed)

    def _event_of_all(self, together: Sequence[Answer]) -> AckedTogether:
        acks = [answer.event for answer in together if isinstance(answer.event, Acked)]
        if self.answered.isdisjoint(ack.region for ack in acks):
            # Else none of them counts: see `PendingAttempt.acked_together`.
            for answer in together:
                self.answered.add(answer.event.region)
                self._metrics.add(answer.event.region, answer.figures)
        return AckedTogether(attempt=self.attempt, acks=acks)

    def _event(
        self, answer: Answer, order: AttemptOrder, *, owed: bool
    ) -> RegionStarted | Acked | Declined:
        event = answer.event
        if isinstance(event, RegionStarted):
            return event
        self.answered.add(event.region)
        self._metrics.add(event.region, answer.figures)
        if isinstance(event, Declined) and order.only_stores(answer.partition):
            # Tasks without rows of the batch end together when one of them is lost.
            return replace(event, task="owed" if owed else f"partition {answer.partition}")
        return event
