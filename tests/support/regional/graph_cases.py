"""Small graphs for tests of one rule each: rows are numbers, which operators remember."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from holdfast.regions.graph import (
    ChannelData,
    Progress,
    RegionGraph,
    RegionSnapshot,
    StageSpec,
)


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(numbers, pa.int64())})


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("id").to_pylist()]


def by_number(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
    """Row 10 goes to instance 0 of 3, row 11 to instance 1, row 12 to instance 2."""
    found = numbers([batch])
    parts = [[number for number in found if number % instances == i] for i in range(instances)]
    return [rows(*part) if part else None for part in parts]


def to_all(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
    return [batch] * instances


def passed_on(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    return [batch]


class Seen:
    """Remembers the numbers it saw and passes them on, or emits chosen numbers."""

    def __init__(
        self,
        *,
        emit: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]] = passed_on,
        flush: Sequence[pa.RecordBatch] = (),
    ) -> None:
        self.seen: list[int] = []
        self.flushed = 0
        self._emit = emit
        self._flush = flush

    def process(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        self.seen += numbers([batch])
        return self._emit(batch)

    def snapshot(self, checkpoint: int) -> object:
        return tuple(self.seen)

    def end_of_data(self) -> Iterable[pa.RecordBatch]:
        self.flushed += 1
        return self._flush


def graph_of(
    *stages: StageSpec,
    capacity: int = 10,
    timeout_ms: int | None = None,
    max_in_flight_bytes: int = 1 << 30,
) -> RegionGraph:
    return RegionGraph(
        stages,
        capacity_batches=capacity,
        timeout_ms=timeout_ms,
        max_in_flight_bytes=max_in_flight_bytes,
    )


def run(graph: RegionGraph, *, now_ms: int = 0) -> Progress:
    """Step until there is nothing to do."""
    while (progress := graph.step(now_ms)) is Progress.WORKED:
        pass
    return progress


def snapshot_of(graph: RegionGraph, *, now_ms: int = 0) -> RegionSnapshot:
    """Step until the snapshot of the open attempt is complete, and no further."""
    while (snapshot := graph.take_snapshot()) is None:
        assert graph.step(now_ms) is Progress.WORKED, "the attempt does not complete"
    return snapshot


def due_ms(graph: RegionGraph) -> int | None:
    """Time at which the open attempt's barrier may overtake; None: never, or it does already."""
    attempt = graph._attempt
    if attempt is None or attempt.overtaking or graph._is_complete(attempt):
        return None
    return attempt.due_ms


def in_flight(snapshot: RegionSnapshot) -> dict[str, list[int]]:
    return {data.channel: numbers(data.batches) for data in snapshot.in_flight}


def outputs(graph: RegionGraph) -> list[int]:
    return numbers(output.batch for output in graph.take_output())


def channel_data(channel: str, *batches: pa.RecordBatch, kind: str = "input") -> ChannelData:
    assert kind in ("input", "output")
    return ChannelData(channel, batches, "input" if kind == "input" else "output")
