"""What the coordinator does with the entries of regions, which are opaque to it otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from holdfast._core import InFlight, RegionEntry, SegmentRef

Kind = Literal["checkpoint", "savepoint", "final"]


def combined(entries: Iterable[RegionEntry], *, region: str, origin: int) -> RegionEntry:
    """Join what the members of one region acknowledged into one entry."""
    found = list(entries)
    return RegionEntry(
        region,
        origin=origin,
        operators=[operator for entry in found for operator in entry.operators],
        in_flight=[stored for entry in found for stored in entry.in_flight],
        staged=[staged for entry in found for staged in entry.staged],
        finished=all(entry.finished for entry in found),
    )


def segments(
    entry: RegionEntry | None = None, in_flight: Iterable[InFlight] = ()
) -> set[SegmentRef]:
    """Return the segments that an answer refers to."""
    found = {stored.ref for stored in in_flight if stored.ref is not None}
    if entry is not None:
        found.update(ref for _, _, ref in entry.refs())
    return found
