"""The answers of an attempt's tasks, as events for the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, Final

from holdfast.regions.base.errors import RegionFinishedError, RegionInTwoTasksError
from holdfast.regions.coordinator import Acked, Declined, Event, RegionStarted, RunAttempt
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder

LOG: Final = logging.getLogger(__name__)


class AttemptWatch:
    """Which regions of an attempt were seen where."""

    def __init__(self, action: RunAttempt, retained: Sequence[int]) -> None:
        self.attempt = action.attempt
        self._finished = action.finished
        self._retained = retained
        self.partitions: dict[str, int] = {}
        self.answered: set[str] = set()

    def events(
        self,
        given: Generator[answers.Answer, None, None],
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
                if answer.attempt != self.attempt:
                    LOG.info("region %r answers for attempt %d late", answer.region, answer.attempt)
                    continue
                seen_in = self.partitions.setdefault(answer.region, answer.partition)
                if not owed and seen_in != answer.partition:
                    raise RegionInTwoTasksError(answer.region, seen_in, answer.partition)
                if not owed and answer.region in self._finished:
                    raise self._finished_error(answer.region)
                yield self._event(answer, _lost_task(answer, order, owed=owed))

    def _finished_error(self, region: str) -> RegionFinishedError:
        finished = self._finished[region]
        older = max((id for id in self._retained if id < finished), default=None)
        return RegionFinishedError(region, finished, older)

    def _event(self, answer: answers.Answer, lost_task: str | None) -> Event:
        common: Any = {"attempt": answer.attempt, "region": answer.region}
        if isinstance(answer, answers.Started):
            return RegionStarted(**common)
        self.answered.add(answer.region)
        if isinstance(answer, answers.Acked):
            return Acked(**common, entry=answer.entry)
        return Declined(
            **common,
            cause=answer.cause,
            in_flight=tuple(answer.in_flight),
            had_rows=answer.had_rows,
            task=lost_task,
            problem=answer.problem,
        )


def _lost_task(answer: answers.Answer, order: AttemptOrder, *, owed: bool) -> str | None:
    """Name the task that was lost with the region, if it was."""
    if not order.only_stores(answer.partition):
        return None
    # Tasks without rows of the batch end together when one of them is lost.
    return "owed" if owed else f"partition {answer.partition}"
