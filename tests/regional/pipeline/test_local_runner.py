"""Tasks on threads of this process, and how they end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast._core import CheckpointMetadata
from holdfast.regions.api.chain import Chain
from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator import RegionStarted
from holdfast.regions.protocol.orders import AttemptOrder, OutputPlan, StagePlan, TaskOptions
from holdfast.regions.runners import local
from holdfast.regions.runners.local import LocalRunner
from holdfast.regions.sinks import ParquetSink
from support.regional.pipelines import (
    COUNTED,
    Gate,
    RunningCount,
    expected,
    output_of,
    partitions_of,
    rows_of,
)


def test_an_attempt_that_is_over_begins_no_other_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = Gate()

    class Over(threading.Event):
        def set(self) -> None:
            super().set()
            over.open()

    monkeypatch.setattr(local, "threading", SimpleNamespace(Thread=threading.Thread, Event=Over))
    begun: list[int] = []

    def partition(number: int, batches: list[Any]) -> Iterator[Any]:
        begun.append(number)
        yield from batches
        over.pass_through()

    counting = StagePlan("count", b"", COUNTED, given=RunningCount())
    outputs = [OutputPlan("", COUNTED, ParquetSink(tmp_path / "out"))]
    plan = Chain(None, ("region",), (counting,)).plan("test", outputs, TaskOptions())
    empty = CheckpointMetadata(1, -1, "checkpoint", 0, b"", {}).to_bytes()
    order = AttemptOrder(attempt=2, created_ms=now_ms(), base=empty)
    runner = LocalRunner(plan, tmp_path / "segments", tasks=1, max_file_bytes=1 << 20)
    parts = partitions_of(rows_of(0, ["a", "b", "c"]), 3)
    answers = runner.run(order, [partition(n, part) for n, part in enumerate(parts)], ())
    assert isinstance(next(answers).event, RegionStarted)
    answers.close()
    assert begun == [0]
    assert not any(thread.name == "holdfast-task" for thread in threading.enumerate())
    runner.close()


class FromAQueue:
    """Rows that are taken from a queue as they are read."""

    def __iter__(self) -> Iterator[Any]:
        yield queue.SimpleQueue[Any]().get_nowait()


def test_rows_that_end_with_an_empty_queue_are_no_end_of_the_batch(tmp_path: Path) -> None:
    (rows,) = partitions_of(rows_of(0, ["a"]), 1)
    with counting(tmp_path) as query, pytest.raises(holdfast.RegionalQueryError, match="Empty"):
        query.run_batch([FromAQueue(), rows])
    assert output_of(tmp_path / "out") == []


def test_rows_that_can_be_read_once_are_not_taken_for_those_of_another_attempt(
    tmp_path: Path,
) -> None:
    def of_a_file(rows: list[Any]) -> Iterator[Any]:
        raise OSError("no such file")
        yield from rows

    first, second = partitions_of(rows_of(0, ["a", "b"]), 2)
    with counting(tmp_path) as query:
        query.run_batch([iter(first), iter(second)])
        with pytest.raises(holdfast.RegionalQueryError, match="give run_batch\\(\\) a list"):
            query.run_batch([of_a_file(first), second])
    assert output_of(tmp_path / "out") == expected([rows_of(0, ["a", "b"])])


def counting(path: Path) -> holdfast.LocalQuery:
    return (
        holdfast.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED)
        .write_parquet(path / "out")
        .open_local(path / "ckpt", tasks=1)
    )
