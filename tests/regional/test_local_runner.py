"""Tasks on threads of this process, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast._core import CheckpointMetadata
from holdfast.regions.base.clock import now_ms
from holdfast.regions.coordinator import RegionStarted
from holdfast.regions.protocol.orders import AttemptOrder, TaskOptions
from holdfast.regions.runners import local
from holdfast.regions.runners.local import LocalRunner
from holdfast.regions.sinks import ParquetSink
from support.regional.pipelines import COUNTED, Gate, RunningCount, partitions_of, rows_of


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

    plan = (
        holdfast.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED)
        ._chain.plan("test", ParquetSink(tmp_path / "out"), TaskOptions())
    )
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
