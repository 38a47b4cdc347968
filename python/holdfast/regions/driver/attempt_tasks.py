"""Runs the tasks of an attempt, and runs lost work again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from typing import Final

from holdfast._core import RegionEntry
from holdfast.regions.base.clock import Clock
from holdfast.regions.coordinator import (
    Acked,
    AckedTogether,
    Event,
    RegionStarted,
    RunAttempt,
    TasksEnded,
    TasksFailed,
)
from holdfast.regions.driver.attempt_watch import AttemptWatch
from holdfast.regions.driver.task_runner import TaskRunner, TasksLostError
from holdfast.regions.protocol.orders import AttemptOrder

LOG: Final = logging.getLogger(__name__)


def run_tasks(
    runner: TaskRunner,
    action: RunAttempt,
    order: AttemptOrder,
    source: object | None,
    watch: AttemptWatch,
    clock: Clock,
    *,
    on_retire: bool,
) -> Generator[Event, None, None]:
    """Run the tasks of an attempt; yields events, and last that the tasks ended or failed.

    Closing it ends the tasks. `source` has the rows of the batch, if any, in the runner's form.
    `on_retire`: operators may put out rows when their region is retired.
    """
    for region in order.events:
        # Without an answer, the events for the region would be lost.
        yield RegionStarted(attempt=order.attempt, region=region)
    try:
        if source is not None and action.new_rows:
            yield from _run_rows(runner, order, source, watch)
        # Events may wait for regions that the batch has no rows for.
        owing = dict.fromkeys((*action.owed, *order.events))
        owed = [region for region in owing if region not in watch.partitions]
        # The regions with rows are known now (R66).
        idle = {
            region: entry
            for region, entry in action.retiring.items()
            if region not in watch.partitions and region not in order.events
        }
        last_rows = [region for region in idle if on_retire and not idle[region].finished]
        if owed or last_rows:
            current = replace(order, retire=frozenset(last_rows), rested_ms=action.woken)
            for event in _run_owed(runner, current, [*owed, *last_rows], watch):
                yield _without_rows(event, action.woken)
        for region in idle.keys() - last_rows:
            entry = RegionEntry(region, origin=order.attempt)
            yield Acked(attempt=order.attempt, region=region, entry=entry)
    except TasksLostError as e:
        yield TasksFailed(attempt=order.attempt, cause=str(e), now_ms=clock.now_ms())
    else:
        yield TasksEnded(attempt=order.attempt, now_ms=clock.now_ms())


def _without_rows(event: Event, rested: Collection[str]) -> Event:
    """Note on acknowledgements that their region had no rows."""
    if isinstance(event, AckedTogether):
        acks = [replace(ack, without_rows=ack.region in rested) for ack in event.acks]
        return replace(event, acks=acks)
    if isinstance(event, Acked):
        return replace(event, without_rows=event.region in rested)
    return event


def _run_rows(
    runner: TaskRunner, order: AttemptOrder, source: object, watch: AttemptWatch
) -> Generator[Event, None, None]:
    """Run all partitions of the batch to answers for all of their regions.

    If a task is lost, the partitions are read again. The lost partition only stores the rows of its
    regions, so that the attempt can continue without them and learns which regions those are. Other
    partitions that ended with it run their regions.
    """
    lost: frozenset[int] | None = frozenset()
    current = order
    while True:
        try:
            yield from watch.events(runner.run(current, source, ()), current)
            return
        except TasksLostError as e:
            if lost is None:
                raise TasksLostError(
                    f"{current.lost_cause}; then their rows could not be stored: {e}"
                ) from e
            LOG.warning("attempt %d lost tasks: %s", order.attempt, e)
            known = e.partition is not None and e.partition not in lost
            lost = lost | {e.partition} if known and e.partition is not None else None
            current = replace(
                order, answered=frozenset(watch.answered), lost=lost, lost_cause=str(e)
            )


def _run_owed(
    runner: TaskRunner, order: AttemptOrder, owed: Sequence[str], watch: AttemptWatch
) -> Generator[Event, None, None]:
    """Run regions with pending rows and none in this batch."""
    try:
        yield from watch.events(runner.run(order, None, owed), order, owed=True)
    except TasksLostError as e:
        LOG.warning("attempt %d lost tasks: %s", order.attempt, e)
        left = [region for region in owed if region not in watch.answered]
        current = replace(order, lost=None, lost_cause=str(e))
        yield from watch.events(runner.run(current, None, left), current, owed=True)
