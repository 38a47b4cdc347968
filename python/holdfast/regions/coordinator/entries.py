"""What the coordinator does with the entries of regions, which are opaque to it otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from holdfast._core import InFlight, Owner, RegionEntry, SegmentRef
from holdfast.regions.base.owners import RegionOwners

CheckpointKind = Literal["checkpoint", "savepoint", "final"]


def entry_segments(pipeline: str, entry: RegionEntry) -> Iterator[tuple[Owner, SegmentRef]]:
    """Yield the segments of a region's entry with their owners."""
    for operator, store, ref in entry.refs():
        yield Owner(pipeline, operator, entry.region, store), ref


def in_flight_segments(
    pipeline: str, region: str, in_flight: Iterable[InFlight]
) -> Iterator[tuple[Owner, SegmentRef]]:
    """Yield the segments of a region's in-flight data with their owners."""
    for stored in in_flight:
        if stored.ref is not None:
            yield RegionOwners(pipeline, region).in_flight(stored.created), stored.ref
