"""Regions that run without rows, because a timer in processing time is due (R68)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from holdfast._core import RegionEntry

DueOf: TypeAlias = "Callable[[RegionEntry], int | None]"
"""Returns when the first timer of a region is due, in microseconds since 1970."""


class Wakes:
    """Knows when timers of regions are due.

    - `due_of`: None if no operator has timers.
    - `entries`: regions of the latest checkpoint.
    - `at_once`: regions that run without rows in one attempt.
    """

    def __init__(
        self, due_of: DueOf | None, entries: Iterable[tuple[str, RegionEntry]], *, at_once: int
    ) -> None:
        self._due_of = due_of
        self._at_once = at_once
        self._due_us: dict[str, int] = {}
        # A heap of these, with times that were replaced.
        self._first: list[tuple[int, str]] = []
        if due_of is not None:
            for region, entry in entries:
                self._note(due_of, region, entry)

    def at(self, now_ms: int, *, without: Collection[str]) -> frozenset[str]:
        """Return a bounded number of due regions, those due first, and none in `without`."""
        due: dict[str, int] = {}
        most = self._at_once + len(without)
        while self._first and self._first[0][0] <= now_ms * 1000 and len(due) < most:
            us, region = heapq.heappop(self._first)
            if self._due_us.get(region) == us:
                due[region] = us
        for region, us in due.items():
            heapq.heappush(self._first, (us, region))
        return frozenset(islice((region for region in due if region not in without), self._at_once))

    def completed(self, answered: Iterable[str], entries: Mapping[str, RegionEntry]) -> None:
        """Take over answered regions from a new checkpoint."""
        if self._due_of is not None:
            for region in answered:
                self._note(self._due_of, region, entries.get(region))

    def _note(self, due_of: DueOf, region: str, entry: RegionEntry | None) -> None:
        due_us = None if entry is None or entry.finished else due_of(entry)
        if due_us is None:
            self._due_us.pop(region, None)
        elif self._due_us.get(region) != due_us:
            self._due_us[region] = due_us
            heapq.heappush(self._first, (due_us, region))
            if len(self._first) > 2 * len(self._due_us) + self._at_once:
                self._first = [(us, region) for region, us in self._due_us.items()]
                heapq.heapify(self._first)
