"""Regions whose timers are due, beside a list of all of them."""

from __future__ import annotations

import random

import pytest

from holdfast._core import RegionEntry
from holdfast.regions.coordinator.wakes import Wakes


def due_of(entry: RegionEntry) -> int | None:
    """Return the origin of a region as the time of its timer; 0 stands for none."""
    return entry.origin * 1000 or None


@pytest.mark.parametrize("seed", range(20))
def test_regions_are_woken_that_are_due_first(seed: int) -> None:
    chosen = random.Random(seed)  # noqa: S311
    names = [f"r{number:02}" for number in range(12)]

    def entries(regions: list[str]) -> dict[str, RegionEntry]:
        return {name: RegionEntry(name, origin=chosen.randrange(30)) for name in regions}

    known = entries(names[:8])
    found = Wakes(due_of, known.items(), at_once=4)
    for now_ms in range(0, 40, 2):
        without = frozenset(chosen.sample(names, 3))
        due = sorted(
            (entry.origin, name)
            for name, entry in known.items()
            if 0 < entry.origin <= now_ms and name not in without
        )
        for _ in range(2):  # nothing is forgotten
            assert found.at(now_ms, without=without) == {name for _, name in due[:4]}
        answered = chosen.sample(names, 5)
        known |= entries(answered[1:])
        known.pop(answered[0], None)
        found.completed(answered, known)
