"""The notices at the end of an attempt, and their order (R18, R34, R42, R44)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast._core import Owner, RegionEntry, SegmentRef
from holdfast.regions.coordinator.actions import (
    Action,
    Ended,
    NotifyCoordinator,
    NotifyManagers,
    SettleEvents,
)
from holdfast.regions.coordinator.retention import Retention


@dataclass(frozen=True)
class Unsettled:
    """A publication whose notices wait until the metadata of subsumed checkpoints was dropped.

    `decided` and `released` are those of `NotifyManagers`. After a restart no attempt has ended and
    no events are to settle: the coordinators are reset.
    """

    checkpoint: int
    decided: int
    released: Mapping[Owner, Sequence[SegmentRef]]
    ended: Ended | None
    settled: tuple[SettleEvents, ...] = ()


def after_drop(
    unsettled: Unsettled,
    entries: Mapping[str, RegionEntry],
    retention: Retention,
    operators: Collection[str],
    *,
    tell_managers: bool,
) -> Iterator[Action]:
    """Yield the notices of a publication, once the metadata of subsumed checkpoints was dropped.

    A restart must not find metadata without segments, so checkpoints that could not be dropped are
    in the managers' view (R76). All of it may be repeated after a restart (R74).
    """
    checkpoint = unsettled.checkpoint
    if tell_managers:
        view = retention.view()
        moved = view[checkpoint]
        yield NotifyManagers(
            message="partially_completed" if moved else "completed",
            checkpoint=checkpoint,
            fallbacks=moved,
            retained=view,
            decided=unsettled.decided,
            released=unsettled.released,
        )
    yield from unsettled.settled
    if operators:
        took_part = frozenset(
            region
            for region, entry in entries.items()
            if entry.origin == checkpoint and not entry.failed
        )
        effective = {
            region: entry.origin if entry.failed else checkpoint
            for region, entry in entries.items()
        }
        for operator in operators:
            yield NotifyCoordinator(
                operator=operator,
                kind="completed",
                attempt=checkpoint,
                effective=effective,
                took_part=took_part,
            )
    if unsettled.ended is not None:
        yield unsettled.ended


def after_abort(attempt: int, retention: Retention, operators: Collection[str]) -> Iterator[Action]:
    """Yield the notices of an aborted attempt; earlier segments are kept (R42, R43)."""
    yield NotifyManagers(
        message="aborted",
        checkpoint=attempt,
        fallbacks={},
        retained=retention.view(),
        decided=attempt,
    )
    for operator in operators:
        yield NotifyCoordinator(operator=operator, kind="aborted", attempt=attempt, effective={})
