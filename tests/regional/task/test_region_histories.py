"""Histories of one region, without threads: one answer each time, and each row once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.regions.task.region import run as region_run
from holdfast.regions.task.region.answer import Failed
from holdfast.regions.task.region.feed import RegionFeed
from holdfast.regions.task.region.output import RegionOutput
from holdfast.regions.task.region.region import Region
from support.regional.region_histories import History
from support.regional.seeds import new_seeds

SEEDS = 150

Patch = Callable[[Any, str, Any], None]


def histories(seeds: Iterable[int]) -> set[str]:
    seen: set[str] = set()
    for seed in seeds:
        print(f"seed {seed}")
        with tempfile.TemporaryDirectory() as folder:
            history = History(Path(folder), seed)
            history.run()
            seen |= history.seen
            history.store.close()
    return seen


def test_a_region_answers_once_and_no_row_is_lost_or_doubled() -> None:  # R3, R80
    seen = {"acknowledged", "in flight", "declined", "bad", "not durable", "quarantined"}
    assert histories(range(SEEDS)) == seen


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_region_answers_once_in_very_many_histories() -> None:
    histories(new_seeds(5_000))


def rows_that_a_barrier_overtook_lost(patch: Patch) -> None:
    waiting = RegionFeed.all_waiting
    patch(RegionFeed, "all_waiting", lambda self: waiting(self)[1:])


def rows_of_a_decline_lost(patch: Patch) -> None:
    declined = region_run.declined

    def without(region: Region, *more: Any) -> Any:
        region.feed.source_rows[:1] = []
        return declined(region, *more)

    patch(region_run, "declined", without)


def output_kept_that_a_region_drops(patch: Patch) -> None:
    patch(Region, "discard_output", lambda self: self.outputs.clear())


def output_not_discarded(patch: Patch) -> None:
    patch(RegionOutput, "discard", lambda self: None)


def answered_before_all_rows(patch: Patch) -> None:
    begin = Failed.__init__

    def early(self: Failed, region: Region, *more: Any) -> None:
        region.feed.ended = True
        begin(self, region, *more)

    patch(Failed, "__init__", early)


def rows_given_again_that_are_through(patch: Patch) -> None:
    begin = RegionFeed.begin_again

    def twice(self: RegionFeed) -> None:
        self.source_rows *= 2
        begin(self)

    patch(RegionFeed, "begin_again", twice)


FAULTS = [
    rows_that_a_barrier_overtook_lost,
    rows_of_a_decline_lost,
    output_kept_that_a_region_drops,
    output_not_discarded,
    answered_before_all_rows,
    rows_given_again_that_are_through,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_some_history_of_a_region_finds_a_planted_fault(
    fault: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch.setattr)
    with pytest.raises(AssertionError):
        histories(range(SEEDS))
