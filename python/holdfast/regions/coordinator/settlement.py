"""What follows the end of an attempt: which notices go out, in which order (R18, R34, R42, R44)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from holdfast._core import Owner, RegionEntry, SegmentRef
from holdfast.regions.coordinator.actions import (
    Action,
    CommitSinks,
    DropMetadata,
    NotifyCoordinator,
    NotifyManagers,
)
from holdfast.regions.coordinator.retention import Retention


def after_publication(
    checkpoint: int, *, committed: frozenset[str], given_up: tuple[int, ...]
) -> Iterator[Action]:
    """Yield what follows a publication first; it may be repeated after a restart (R74).

    Parameters
    ----------
    checkpoint : int
        The id that is published.
    committed : frozenset of str
        Regions that took a snapshot for it.
    given_up : tuple of int
        Checkpoints that a restart must not find.
    """
    yield CommitSinks(attempt=checkpoint, regions=committed)
    if given_up:
        yield DropMetadata(ids=given_up)


def after_drop(
    checkpoint: int,
    entries: Mapping[str, RegionEntry],
    retention: Retention,
    *,
    decided: int,
    operators: Collection[str],
    released: Mapping[Owner, Sequence[SegmentRef]],
) -> Iterator[Action]:
    """Yield the notices of a publication, once the metadata of subsumed checkpoints was dropped.

    Not before: a restart must not find metadata without segments, so what could not be dropped is
    in the view of the managers (R76). All of it may be repeated after a restart (R74).

    Parameters
    ----------
    checkpoint : int
        The id that is published, and in ``retention``.
    entries : mapping of str to RegionEntry
        Its regions.
    retention : Retention
        What a restart finds.
    decided : int
        The last attempt that is decided.
    operators : collection of str
        Those that have a coordinator.
    released : mapping of Owner to sequence of SegmentRef
        What refused answers wrote for it.
    """
    view = retention.view()
    moved = view[checkpoint]
    yield NotifyManagers(
        message="partially_completed" if moved else "completed",
        checkpoint=checkpoint,
        fallbacks=moved,
        retained=view,
        decided=decided,
        released=released,
    )
    if operators:
        effective = {
            region: entry.origin if entry.failed else checkpoint
            for region, entry in entries.items()
        }
        yield from _coordinators(operators, "completed", checkpoint, effective)


def after_abort(attempt: int, retention: Retention, operators: Collection[str]) -> Iterator[Action]:
    """Yield the notices of an aborted attempt; what earlier checkpoints need stays (R42, R43)."""
    yield NotifyManagers(
        message="aborted",
        checkpoint=attempt,
        fallbacks={},
        retained=retention.view(),
        decided=attempt,
    )
    yield from _coordinators(operators, "aborted", attempt, {})


def _coordinators(
    operators: Collection[str],
    kind: Literal["completed", "aborted"],
    attempt: int,
    effective: Mapping[str, int],
) -> Iterator[Action]:
    for operator in operators:
        yield NotifyCoordinator(operator=operator, kind=kind, attempt=attempt, effective=effective)
