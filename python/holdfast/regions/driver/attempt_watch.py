"""The answers of an attempt's tasks, as events for the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from holdfast.regions.base.errors import RegionFinishedError, RegionInTwoTasksError
from holdfast.regions.coordinator import Acked, Declined, Event, RegionStarted, RunAttempt
from holdfast.regions.driver.metrics import MetricsLog
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder

LOG: Final = logging.getLogger(__name__)


class AttemptWatch:
    """Which regions of an attempt were seen where; keeps what their operators did."""

    def __init__(self, action: RunAttempt, retained: Sequence[int], metrics: MetricsLog) -> None:
        self.attempt = action.attempt
        self._finished = action.finished
        self._retained = retained
        self._metrics = metrics
        self.partitions: dict[str, int] = {}
        self.answered: set[str] = set()

    def events(
        self,
        given: Generator[Answer, None, None],
        order: AttemptOrder,
        *,
        owed: bool = False,
    ) -> Generator[Event, None, None]:
        """Turn answers to an order into events.

        Unless they are of regions that only replay what is `owed`, one that is in two partitions or
        has finished is an error.
        """
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
                    raise self._finished_error(region)
                yield self._event(answer, order, owed=owed)

    def _finished_error(self, region: str) -> RegionFinishedError:
        finished = self._finished[region]
        older = max((id for id in self._retained if id < finished), default=None)
        return RegionFinishedError(region, finished, older)

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
