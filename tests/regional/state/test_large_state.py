"""Pipelines whose operators have arrays of several chunks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast import SegmentRef
from holdfast.regions.state.arrays.chunks import MIB
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


class Rows(hf.Operator):
    """Sets rows of an array to their numbers in the batch, and puts out what it had there."""

    region_safe = True

    def __init__(self, chunk_bytes: int | None) -> None:
        self.chunk_bytes = chunk_bytes

    def open(self, ctx: hf.OperatorContext) -> None:
        self.rows = ctx.state.array(
            "rows", shape=(ROWS, 64), dtype="float32", chunk_bytes=self.chunk_bytes
        )

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        places, values = batch["row"].to_numpy(), batch["value"].to_numpy()
        found = self.rows[places]
        assert (found == found[:, :1]).all()
        self.rows[places] = values[:, None]
        return pa.record_batch([batch["region"], batch["row"], found[:, 0]], schema=ROW)


#: 4 MiB.
ROWS = 1 << 14
ROW = pa.schema([("region", pa.string()), ("row", pa.int64()), ("value", pa.float32())])


def test_changes_far_apart_write_small_chunks_into_one_segment(tmp_path: Path) -> None:
    choose = np.random.default_rng(1)
    values = np.zeros(ROWS, np.float32)
    found: list[pa.Table] = []

    def run(chunk_bytes: int | None, batches: range) -> list[set[SegmentRef]]:
        pipeline = (
            hf.regional(region_by="region")
            .apply(Rows(chunk_bytes), schema=ROW, name="rows")
            .foreach_batch(lambda rows, checkpoint: found.append(rows))
        )
        refs = []
        with pipeline.open_local(tmp_path / "checkpoint") as query:
            for batch in batches:
                rows = choose.choice(ROWS, 16, replace=False)
                new = np.arange(batch * 100, batch * 100 + 16, dtype=np.float32)
                query.run_batch([[pa.table([["bern"] * 16, rows, new], schema=ROW)]])
                assert found.pop()["value"].to_pylist() == values[rows].tolist()
                values[rows] = new
                (operator,) = query.latest.regions["bern"].operators
                refs.append({piece.ref for piece in operator.states[0].pieces})
        return refs

    small = run(4096, range(1, 30))
    for before, after in pairwise(small[1:]):
        (written,) = after - before
        assert written.length < 17 * 4096
    # Another size of chunks reads what is there, whatever it is cut into.
    run(None, range(30, 32))
    run(512, range(32, 34))


@pytest.mark.parametrize("chunk_bytes", [0, 4095, 256, 1 << 21, True, "4096"])
def test_sizes_of_chunks_that_do_not_fit_are_refused(chunk_bytes: int, tmp_path: Path) -> None:
    rows = hf.regional(region_by="region").apply(Rows(chunk_bytes), schema=ROW)
    query = rows.foreach_batch(lambda rows, checkpoint: None).open_local(tmp_path)
    with query, pytest.raises(hf.RegionalQueryError, match=r"chunk_bytes=.* is not allowed"):
        query.run_batch([[pa.table([["bern"], [1], [1.0]], schema=ROW)]])
