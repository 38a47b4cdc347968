"""Pipelines whose operators have arrays of several chunks."""

from __future__ import annotations

from pathlib import Path

import holdfast as hf
from holdfast import SegmentRef
from holdfast.regions.state.chunks import MIB
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r0", "r1", "r2"]
# A key's counter is the first item of its chunk.
CHUNK_ITEMS = MIB // 8


class WideCount(Troubled):
    """Counts as `RunningCount` does, with one chunk of state for each key."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)
        counters = ctx.state.array("by_key", shape=(8, CHUNK_ITEMS), dtype="int64")
        self.by_key = counters[:, 0]


def pipeline(path: Path, hooks: Hooks | None = None) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(WideCount(hooks), schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .open_local(path / "ckpt")
    )


def chunks_of(query: hf.LocalQuery, region: str) -> list[tuple[SegmentRef, int]]:
    """Where each of a region's chunks lies: segment and offset."""
    (operator,) = query.latest.regions[region].operators
    (array,) = (state for state in operator.states if state.kind == "array")
    return [
        (piece.ref, piece.payload_offset + start)
        for piece in array.pieces
        for start in range(0, piece.length, MIB)
    ]


def changed(before: list[tuple[SegmentRef, int]], after: list[tuple[SegmentRef, int]]) -> list[int]:
    return [chunk for chunk in range(8) if before[chunk] != after[chunk]]


def test_a_checkpoint_writes_the_chunks_that_changed_since_the_last_completed_one(
    tmp_path: Path, hooks: Hooks
) -> None:
    # Each region has the keys `batch + 0`, `batch + 1`, ... of a batch.
    batches = [rows_of(number, REGIONS, each=each) for number, each in enumerate((8, 2, 1, 1, 1))]

    def trouble(region: str, ids: list[int]) -> None:
        if region == "r1" and ids[0] >= 1000:
            raise RuntimeError("in trouble")

    with pipeline(tmp_path, hooks) as query:
        query.run_batch(partitions_of(batches[0], 2), batch_id=0)
        first = {region: chunks_of(query, region) for region in REGIONS}
        hooks.on_rows = trouble
        query.run_batch(partitions_of(batches[1], 2), batch_id=1)
        second = {region: chunks_of(query, region) for region in REGIONS}
        assert changed(first["r0"], second["r0"]) == [1, 2]
        assert second["r1"] == first["r1"]  # R41
        hooks.calm()
        query.run_batch(partitions_of(batches[2], 2), batch_id=2)
        third = {region: chunks_of(query, region) for region in REGIONS}
        assert changed(second["r0"], third["r0"]) == [2]
        assert changed(second["r1"], third["r1"]) == [1, 2]  # what it owed, and what is new
    with pipeline(tmp_path, hooks) as query:
        query.run_batch(partitions_of(batches[3], 2), batch_id=3)
        query.run_batch(partitions_of(batches[4], 2), batch_id=4)
        for region in REGIONS:
            assert changed(third[region], chunks_of(query, region)) == [3, 4]
    assert output_of(tmp_path / "out") == expected(batches)


def test_state_is_whole_after_every_restart(
    tmp_path: Path,
) -> None:
    batches = [rows_of(number, REGIONS, each=1) for number in range(6)]
    for number, rows in enumerate(batches):
        with pipeline(tmp_path) as query:
            query.run_batch(partitions_of(rows, 2), batch_id=number)
    assert output_of(tmp_path / "out") == expected(batches)
