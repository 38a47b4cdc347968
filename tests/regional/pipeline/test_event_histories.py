"""Histories of a coordinator of a user: every event once, and between the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.errors import RegionalQueryError
from holdfast.regions.base.saved import LeaseOf
from holdfast.regions.coordinator import (
    CoordinatorEvents,
    SettleEvents,
    evaluation,
)
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.driver.coordinator_host import CoordinatorHost, Hosted
from holdfast.regions.protocol.orders import RegionEvent
from holdfast.regions.task.instance import OperatorInstance
from support.regional.event_histories import STEPS, History
from support.regional.seeds import new_seeds

SEEDS = 8

Patch = Callable[[Any, str, Any], None]


def histories(seeds: Iterable[int]) -> set[str]:
    seen: set[str] = set()
    for seed in seeds:
        print(f"seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            history = History(Path(folder), seed)
            try:
                history.run()
            finally:
                history.query.close()
            seen |= history.seen
    return seen


def test_every_event_comes_once_and_between_the_same_rows() -> None:  # R31, R36
    seen = {"global", "regional", "aborted", "in flight", *STEPS}
    assert histories(range(SEEDS)) == seen


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_event_comes_once_in_very_many_histories() -> None:
    histories(new_seeds(600))


def event_delivered_twice(patch: Patch) -> None:
    """A region takes an event twice."""
    on_event = OperatorInstance.on_event

    def twice(self: OperatorInstance, event: bytes) -> None:
        on_event(self, event)
        on_event(self, event)

    patch(OperatorInstance, "on_event", twice)


def event_kept_for_healthy_regions(patch: Patch) -> None:
    """Events stay in the checkpoint although the state of their region reflects them."""
    events = PendingAttempt.events

    def all_of_them(self: PendingAttempt, operator: str) -> CoordinatorEvents:
        return replace(events(self, operator), waiting=self.waiting.get(operator, {}))

    patch(PendingAttempt, "events", all_of_them)


def event_lost_on_fallback(patch: Patch) -> None:
    """A region that falls back does not get its events again."""
    events = PendingAttempt.events
    patch(PendingAttempt, "events", lambda *of: replace(events(*of), waiting={}))


def event_behind_the_rows_it_came_before(patch: Patch) -> None:
    """Events of a region that fell back come behind all rows that it owes."""
    patch_events(patch, attempt=10**9)


def event_in_front_of_rows_that_are_owed(patch: Patch) -> None:
    """Events come in front of all rows that a region owes."""
    patch_events(patch, attempt=0)


def patch_events(patch: Patch, *, attempt: int) -> None:
    take_events = CoordinatorHost.take_events

    def dated(self: CoordinatorHost) -> dict[str, tuple[RegionEvent, ...]]:
        return {
            region: tuple(RegionEvent(attempt, *event[1:]) for event in events)
            for region, events in take_events(self).items()
        }

    patch(CoordinatorHost, "take_events", dated)


def snapshot_after_the_barrier(patch: Patch) -> None:
    """The coordinator's snapshot has what it sent while the regions ran."""
    hosted: list[Any] = []
    begin, metadata_of = CoordinatorHost.__init__, evaluation.metadata_of

    def started(self: CoordinatorHost, coordinators: Any, **more: Any) -> None:
        begin(self, coordinators, **more)
        hosted[:] = coordinators.values()

    def late(attempt: PendingAttempt, *more: Any) -> CheckpointMetadata:
        attempt.snapshots = dict.fromkeys(attempt.snapshots, hosted[0].encoded())
        return metadata_of(attempt, *more)

    patch(CoordinatorHost, "__init__", started)
    patch(evaluation, "metadata_of", late)


def what_regions_sent_lost(patch: Patch) -> None:
    """Events to the coordinator are not in the checkpoint."""
    events = PendingAttempt.events
    patch(PendingAttempt, "events", lambda *of: replace(events(*of), received=()))


def what_regions_sent_comes_twice(patch: Patch) -> None:
    """The coordinator hears events of regions twice."""
    settle = Hosted.settle

    def twice(self: Hosted, action: SettleEvents) -> None:
        settle(self, action)
        settle(self, action)

    patch(Hosted, "settle", twice)


def what_failed_regions_sent_counts(patch: Patch) -> None:
    """An instance keeps what it sent in attempts before."""
    begin = OperatorInstance.begin

    def with_all(self: Any, lease: LeaseOf) -> None:
        sent = [*self.sent]
        begin(self, lease)
        self.sent.extend(sent)

    patch(OperatorInstance, "begin", with_all)


FAULTS = [
    event_delivered_twice,
    event_kept_for_healthy_regions,
    event_lost_on_fallback,
    event_behind_the_rows_it_came_before,
    event_in_front_of_rows_that_are_owed,
    snapshot_after_the_barrier,
    what_regions_sent_lost,
    what_regions_sent_comes_twice,
    what_failed_regions_sent_counts,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_some_history_of_events_finds_a_planted_fault(
    fault: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch.setattr)
    with pytest.raises((AssertionError, RegionalQueryError)):
        histories(range(SEEDS))
