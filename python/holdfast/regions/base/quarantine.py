"""Regions in quarantine: a checkpoint keeps their state and their rows, and no operator runs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._core import InFlight, RegionEntry


def in_quarantine(entry: RegionEntry) -> bool:
    """Return whether a region is in quarantine: it fell back before and is not failed now."""
    return entry.fallbacks > 0 and not entry.failed


def quarantined(entry: RegionEntry, in_flight: Sequence[InFlight] | None = None) -> RegionEntry:
    """Return the entry as one in quarantine; `in_flight` are all pending rows, if they changed."""
    return RegionEntry(
        entry.region,
        origin=entry.origin,
        operators=entry.operators,
        in_flight=entry.in_flight if in_flight is None else in_flight,
        finished=entry.finished,
        fallbacks=entry.fallbacks,
        stale_since_ms=entry.stale_since_ms,
        cause=entry.cause,
    )
