"""An attempt that was aborted is made again: after a pause, for some time, unless one stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import StoppedError
from holdfast.regions.files.folders import CheckpointFolders
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Row,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)
from support.regional.quick_clock import QuickClock

REGIONS = [f"r{number:02}" for number in range(6)]
WAIT_SECONDS = 60


def pipeline(path: Path, hooks: Hooks | None = None, **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **options)
    )


def run(query: hf.LocalQuery, rows: Sequence[Row], *, tasks: int = 2) -> None:
    query.run_batch(partitions_of(rows, tasks))


def outage(hooks: Hooks, clock: QuickClock, ms: int) -> None:
    """Let every region fail until pauses have taken so long."""
    over_ms = sum(clock.pauses) + ms

    def trouble(region: str, ids: Sequence[int]) -> None:
        if sum(clock.pauses) < over_ms:
            raise ConnectionError("the feature store is away")

    hooks.on_rows = trouble


def test_an_outage_while_the_pipeline_drains_is_waited_out(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:  # R24, R25
    batches = [rows_of(number, REGIONS) for number in range(2)]
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[0])
        hooks.on_rows = failing("r02")
        run(query, batches[1])
        outage(hooks, clock, 2_000)
        query.finish()
        assert query.latest.is_global
    assert clock.pauses == [100, 200, 400, 800, 1_600]
    assert output_of(tmp_path / "out") == expected(batches)


def test_storage_that_is_away_for_a_while_at_the_end_of_data_is_waited_out(
    tmp_path: Path, clock: QuickClock, monkeypatch: pytest.MonkeyPatch
) -> None:  # R24, R25
    rows = rows_of(0, REGIONS)
    with pipeline(tmp_path) as query:
        run(query, rows)
        over_ms, publish = sum(clock.pauses) + 2_000, CheckpointFolders.publish

        def published(self: CheckpointFolders, metadata: CheckpointMetadata) -> None:
            if sum(clock.pauses) < over_ms:
                raise OSError("no space left")
            publish(self, metadata)

        monkeypatch.setattr(CheckpointFolders, "publish", published)
        query.end_of_data()
        assert query.latest.kind == "final"
    assert clock.pauses == [100, 200, 400, 800, 1_600]


def test_what_keeps_failing_ends_the_pipeline_when_time_is_up(
    tmp_path: Path, clock: QuickClock, hooks: Hooks
) -> None:  # R24, R25
    batches = [rows_of(number, REGIONS) for number in range(2)]
    with pipeline(tmp_path, hooks, global_timeout=timedelta(seconds=3)) as query:
        run(query, batches[0])
        hooks.on_rows = failing("r02")
        run(query, batches[1])
        with pytest.raises(hf.RegionalQueryError, match=r"in 3 s \(global_timeout\).*in trouble"):
            query.finish()
        assert clock.pauses[:4] == [100, 200, 400, 800]
    hooks.calm()
    with pipeline(tmp_path, hooks) as query:
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_pipeline_that_is_stopped_does_not_wait_for_another_attempt(
    tmp_path: Path, clock: QuickClock, monkeypatch: pytest.MonkeyPatch, hooks: Hooks
) -> None:
    batches = [rows_of(number, REGIONS) for number in range(2)]
    with pipeline(tmp_path, hooks, tolerable_failed_checkpoints=100) as query:
        run(query, batches[0])
        hooks.on_rows = failing(*REGIONS)
        pauses = iter([lambda: None, clock.interrupt])
        pause = QuickClock.pause

        def interrupted(self: QuickClock, ms: int) -> bool:
            next(pauses)()
            return pause(self, ms)

        monkeypatch.setattr(QuickClock, "pause", interrupted)
        with pytest.raises(StoppedError, match=r"stopped before batch 1 .*in the same way"):
            run(query, batches[1])
        # Nothing is owed, since the batch is in no checkpoint.
        query.finish()
        assert query.latest.batch_id == 0
    hooks.calm()
    with pipeline(tmp_path, hooks) as query:
        run(query, batches[1])
    assert output_of(tmp_path / "out") == expected(batches)


def test_a_pause_ends_when_another_thread_interrupts_it() -> None:
    clock = Clock()
    came_back: list[bool] = []
    waiting = threading.Thread(target=lambda: came_back.append(clock.pause(3_600_000)))
    waiting.start()
    clock.interrupt()
    waiting.join(WAIT_SECONDS)
    assert came_back == [False]
    clock.resume()
    assert clock.pause(1)


def test_one_lost_worker_of_two_does_not_end_the_pipeline(tmp_path: Path) -> None:  # R12
    batches = [rows_of(number, REGIONS) for number in range(3)]
    with pipeline(tmp_path) as query:
        run(query, batches[0])
        one, other = partitions_of(batches[1], 2)
        query.run_batch([_Lost(one), other])
        record = query.history()[-1]
        assert record.outcome == "regional"
        assert [failed.region for failed in record.failed] == ["r00", "r02", "r04"]
        run(query, batches[2])
        query.finish()
    assert output_of(tmp_path / "out") == expected(batches)


def test_active_regions_that_all_fail_complete_no_checkpoint_beside_idle_ones(
    tmp_path: Path, hooks: Hooks
) -> None:  # R12
    names = [f"r{number:03}" for number in range(100)]
    with pipeline(tmp_path, hooks) as query:
        run(query, rows_of(0, names, each=1))
        hooks.on_rows = failing(*names[:8])
        with pytest.raises(hf.RegionalQueryError, match="in the same way: 8 of 8"):
            run(query, rows_of(1, names[:8], each=1))
        assert query.latest.batch_id == 0


def failing(*regions: str) -> Any:
    def trouble(region: str, ids: Sequence[int]) -> None:
        if region in regions:
            raise RuntimeError(f"{region} is in trouble")

    return trouble


class _Lost:
    """Rows of a partition whose task is lost when it has read them, once."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self.batches = batches
        self.lost = False

    def __iter__(self) -> Iterator[Any]:
        yield from self.batches
        if not self.lost:
            self.lost = True
            raise ConnectionError("the worker was killed")
