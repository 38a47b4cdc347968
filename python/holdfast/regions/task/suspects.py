"""Finds the rows at which a region fails, if its operators process each row by itself (R9)."""

from __future__ import annotations

from bisect import bisect_right, insort


class Suspects:
    """Rows of an attempt by their numbers, from 0: rows that fail, and where batches have to end.

    Each time a batch of several rows fails, its halves are given one by one in the next run. A row
    that fails in a batch of its own is left out of later runs. At most `runs_max` runs may fail.
    """

    def __init__(self, runs_max: int) -> None:
        self._runs_max = runs_max
        self._runs = 0
        self._cuts: list[int] = []
        self.bad: dict[int, str] = {}

    @property
    def found(self) -> bool:
        """True if a batch has failed: batches are given one at a time from then on."""
        return self._runs > 0

    def failed(self, begin: int, end: int, reason: str) -> bool:
        """Note that these rows failed; False if there were too many runs."""
        self._runs += 1
        if end - begin == 1:
            self.bad[begin] = reason
        for cut in (begin, (begin + end) // 2, end):
            insort(self._cuts, cut)
        return self._runs < self._runs_max

    def room(self, begin: int) -> int | None:
        """Return how many rows from `begin` may be given together; None: any number."""
        place = bisect_right(self._cuts, begin)
        return self._cuts[place] - begin if place < len(self._cuts) else None
