"""Regions that run without rows, because a timer in processing time is due (R68)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from holdfast._core import RegionEntry

#: Regions that run without rows in one attempt, so that no batch takes long for that.
WOKEN_AT_ONCE: Final = 1_000

DueOf: TypeAlias = "Callable[[RegionEntry], int | None]"
"""Returns when the first timer of a region is due, in microseconds since 1970."""


class Wakes:
    """Knows when timers of regions are due.

    Parameters
    ----------
    due_of : callable or None
        None if no operator has timers.
    entries : iterable of (str, RegionEntry)
        Regions of the latest checkpoint.
    """

    def __init__(self, due_of: DueOf | None, entries: Iterable[tuple[str, RegionEntry]]) -> None:
        self._due_of = due_of
        self._due_us: dict[str, int] = {}
        if due_of is not None:
            for region, entry in entries:
                self._note(due_of, region, entry)

    def at(self, now_ms: int, *, without: Collection[str]) -> frozenset[str]:
        """Return regions to run at a time, those first that are due first; some may not run."""
        due = (
            (us, region)
            for region, us in self._due_us.items()
            if us <= now_ms * 1000 and region not in without
        )
        return frozenset(region for _, region in heapq.nsmallest(WOKEN_AT_ONCE, due))

    def completed(self, answered: Iterable[str], entries: Mapping[str, RegionEntry]) -> None:
        """Take over regions that answered, as they are in a new checkpoint."""
        if self._due_of is not None:
            for region in answered:
                self._note(self._due_of, region, entries.get(region))

    def _note(self, due_of: DueOf, region: str, entry: RegionEntry | None) -> None:
        due_us = None if entry is None or entry.finished else due_of(entry)
        if due_us is None:
            self._due_us.pop(region, None)
        else:
            self._due_us[region] = due_us
