"""Rows reach the instances of an operator in the order in which they arrived (SEMANTICS R59)."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.regions.base.routing import route_by
from support.regional.hooks import Hooks
from support.regional.pipelines import ROWS, Row, Troubled, partitions_of

REGIONS = ["r0", "r1", "r2"]
SEEN = ROWS.append(pa.field("instance", pa.int64())).append(pa.field("place", pa.int64()))


def rows_of(keys: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(keys, pa.int64()), "row": range(len(keys))})


def instance_of(key: int, instances: int) -> int:
    return zlib.crc32(str(key).encode()) % instances


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 9), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    instances=st.integers(1, 5),
)
def test_every_instance_gets_its_rows_in_their_order_however_they_are_cut(
    keys: list[int], cuts: list[int], instances: int
) -> None:
    rows = rows_of(keys)
    got: list[list[int]] = [[] for _ in range(instances)]
    bounds = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    for start, stop in itertools.pairwise(bounds):
        parts = route_by("key")(rows.slice(start, stop - start), instances)
        assert len(parts) == instances
        for number, part in enumerate(parts):
            if part is not None:
                assert part.num_rows
                got[number] += part["row"].to_pylist()
    for number in range(instances):
        mine = [row for row, key in enumerate(keys) if instance_of(key, instances) == number]
        assert got[number] == mine


def test_what_goes_to_one_instance_is_not_copied() -> None:
    rows = rows_of([3, 3, 3])
    (part,) = [part for part in route_by("key")(rows, 4) if part is not None]
    assert part is rows


class Placing(Troubled):
    """Adds which instance a row came to, and as which of its rows."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region, self.instance = ctx.region, ctx.instance
        self.rows = ctx.state.value("rows", 0)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        places = range(self.rows.value, self.rows.value + batch.num_rows)
        self.rows.value += batch.num_rows
        columns = [*batch.columns, pa.array([self.instance] * batch.num_rows), pa.array(places)]
        yield pa.RecordBatch.from_arrays(columns, schema=SEEN)


def interleaved(batch: int) -> list[Row]:
    """Rows of three regions whose keys take turns, so that a grouping by key shows."""
    return [(region, batch * 1000 + index, index % 7) for index in range(50) for region in REGIONS]


def test_a_replay_sees_the_rows_in_the_order_of_the_first_run(tmp_path: Path, hooks: Hooks) -> None:
    batches = [interleaved(number) for number in range(3)]
    pipeline = (
        hf.regional(region_by="region")
        .apply(Placing(hooks), schema=SEEN, name="place", parallelism=3, route_by="key")
        .write_parquet(tmp_path / "out")
    )
    with pipeline.open_local(tmp_path / "ckpt") as query:
        for number, (rows, slices) in enumerate(zip(batches, (7, 1, 13), strict=True)):
            if number == 1:
                hooks.fail_for("r0", range(1000, 2000))
            query.run_batch(partitions_of(rows, 1, slices=slices))
            assert query.latest.is_global == (number != 1)
            hooks.calm()
    seen: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in pq.read_table(tmp_path / "out").to_pylist():
        seen.setdefault((row["region"], row["instance"]), []).append((row["place"], row["id"]))
    for (region, number), found in seen.items():
        ids = [row for rows in batches for of, row, _ in rows if of == region]
        mine = [row for row in ids if instance_of(row % 1000 % 7, 3) == number]
        assert [row for _, row in sorted(found)] == mine
    assert sum(map(len, seen.values())) == sum(map(len, batches))
