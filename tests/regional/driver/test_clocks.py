"""Clocks of other machines, and clocks that are set while a pipeline runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r00", "r01", "r02", "r03"]
HOUR_NS = 3600 * 10**9


class TimeOfDay:
    """The time of day, which the test may set.

    Attributes
    ----------
    ahead_ns
        How far it is ahead.
    on_workers_ns
        How far it is ahead of that where tasks run.
    """

    def __init__(self) -> None:
        self.ahead_ns = 0
        self.on_workers_ns = 0
        self._true: Callable[[], int] = time.time_ns

    def time_ns(self) -> int:
        worker = threading.current_thread().name.startswith("holdfast-")
        return self._true() + self.ahead_ns + (self.on_workers_ns if worker else 0)


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> TimeOfDay:
    day = TimeOfDay()
    monkeypatch.setattr(time, "time_ns", day.time_ns)
    monkeypatch.setattr(time, "time", lambda: day.time_ns() / 1e9)
    return day


def opened(path: Path, hooks: Hooks, **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED)
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **{"region_timeout": timedelta(minutes=1), **options})
    )


def run(query: hf.LocalQuery, number: int) -> None:
    query.run_batch(partitions_of(rows_of(number, REGIONS), 2), batch_id=number)


@pytest.mark.parametrize("seconds", [90, -90])
def test_a_worker_whose_clock_is_ahead_is_not_late(
    tmp_path: Path, day: TimeOfDay, hooks: Hooks, seconds: int
) -> None:  # R4
    day.on_workers_ns = seconds * 10**9
    with opened(tmp_path, hooks, aligned_timeout=timedelta(seconds=30)) as query:
        for number in range(2):
            run(query, number)
            assert not query.latest.failed
            assert not any(entry.in_flight_bytes for entry in query.latest.regions.values())
    assert output_of(tmp_path / "out") == expected([rows_of(n, REGIONS) for n in range(2)])


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
def test_a_clock_that_is_set_in_the_middle_of_a_batch_makes_no_region_late(
    tmp_path: Path, day: TimeOfDay, hooks: Hooks, jump_ns: int
) -> None:  # R4
    def set_clock(region: str, ids: Sequence[int]) -> None:
        if region == "r00":
            day.ahead_ns += jump_ns

    hooks.on_rows = set_clock
    with opened(tmp_path, hooks) as query:
        for number in range(3):
            run(query, number)
            assert not query.latest.failed
        assert [record.outcome for record in query.history()] == ["global"] * 4


def test_a_clock_that_is_set_makes_no_region_stale(
    tmp_path: Path, day: TimeOfDay, hooks: Hooks
) -> None:  # R22
    hooks.fail_for("r01", range(3000))
    limits: dict[str, Any] = {
        "max_region_staleness": (100, timedelta(minutes=10)),
        "max_consecutive_failures": 100,
    }
    with opened(tmp_path, hooks, **limits) as query:
        for number in range(3):
            run(query, number)
            assert set(query.latest.failed) == {"r01"}
            day.ahead_ns += HOUR_NS
        hooks.calm()
        run(query, 3)
        assert not query.latest.failed
        # Attempts are dated by the time of day, as soon as that stretches nothing.
        run(query, 4)
        assert abs(query.latest.created_ms - time.time_ns() // 10**6) < 1800 * 1000
    assert output_of(tmp_path / "out") == expected([rows_of(n, REGIONS) for n in range(5)])


def test_a_clock_that_is_set_gives_up_no_attempt(
    tmp_path: Path, day: TimeOfDay, hooks: Hooks
) -> None:  # R25
    failures: list[str] = []

    def fail_at_first(region: str, ids: Sequence[int]) -> None:
        if region == "r01" and len(failures) < 4:
            failures.append(region)
            day.ahead_ns += HOUR_NS
            raise RuntimeError("in trouble")

    hooks.on_rows = fail_at_first
    with opened(tmp_path, hooks, global_timeout=timedelta(minutes=10)) as query:
        run(query, 0)
        assert set(query.latest.failed) == {"r01"}
        query.finish()
        assert not query.latest.failed
    assert output_of(tmp_path / "out") == expected([rows_of(0, REGIONS)])
