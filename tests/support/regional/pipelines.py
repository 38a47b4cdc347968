"""Operators and rows that several tests of regional pipelines use."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast import LocalQuery, Operator, OperatorContext, regional
from support.regional.hooks import Hooked

ROWS = pa.schema([("region", pa.string()), ("id", pa.int64()), ("key", pa.int64())])
COUNTED = pa.schema(
    [("region", pa.string()), ("id", pa.int64()), ("seen", pa.int64()), ("of_key", pa.int64())]
)
KEYS = 8

Row = tuple[str, int, int]


class RunningCount(Operator):
    """Puts out every row with the number of rows so far, of its region and of its key.

    So the output shows every row that was lost, doubled, or processed out of order.
    """

    region_safe = True

    def open(self, ctx: OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)
        self.by_key = ctx.state.array("by_key", shape=(KEYS,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ids, keys = batch.column("id").to_pylist(), batch.column("key").to_pylist()
        seen, of_key = [], []
        for key in keys:
            self.rows.value += 1
            self.by_key[key] += 1
            seen.append(self.rows.value)
            of_key.append(int(self.by_key[key]))
        yield pa.RecordBatch.from_pydict(
            {"region": batch.column("region"), "id": ids, "seen": seen, "of_key": of_key},
            schema=COUNTED,
        )


class Reminded(RunningCount):
    """Puts out the rows of one region again, in a later batch; see `reminders`."""

    def __init__(self, of: str) -> None:
        self.of = of

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx
        self.reminders = ctx.state.timers("reminders", key=pa.int64(), time="processing")
        # Rows that have expired by the next batch.
        self.ids = ctx.state.table("ids", key=pa.int64(), value=pa.int64(), ttl="1 millisecond")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.ids.upsert(batch["id"], batch["key"])
        if self.region == self.of:
            soon = self.ctx.processing_time() + timedelta(milliseconds=1)
            self.reminders.at(batch["id"], soon)
        yield from super().process(batch)

    def on_timers(self, name: str, due: pa.RecordBatch) -> pa.Table:
        count = due.num_rows
        return pa.table([[self.of] * count, due["key"], *[[-1] * count] * 2], schema=COUNTED)


def reminders(rows: Sequence[Row], of: str) -> list[tuple[str, int, int, int]]:
    """Rows that `Reminded` puts out again."""
    return [(of, row_id, -1, -1) for region, row_id, _ in rows if region == of]


class Troubled(Hooked, RunningCount):
    """Runs `on_rows` of its hooks before it takes in rows."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        return super().process(batch)


def rows_of(batch: int, regions: Sequence[str], *, each: int = 5) -> list[Row]:
    """Rows of a batch: `each` for every region, with ids that rise over batches."""
    return [
        (region, batch * 1000 + index * 10 + place, (batch + index) % KEYS)
        for index in range(each)
        for place, region in enumerate(regions)
    ]


def partitions_of(rows: Sequence[Row], count: int, *, slices: int = 2) -> list[list[Any]]:
    """Partitions with whole regions each, of several Arrow batches each."""
    regions = sorted({region for region, _, _ in rows})
    parts: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        parts[regions.index(row[0]) % count].append(row)
    return [_batches(part, slices) for part in parts]


def expected(batches: Sequence[Sequence[Row]]) -> list[tuple[str, int, int, int]]:
    """The result of a plain loop over all rows."""
    seen: dict[str, int] = {}
    of_key: dict[tuple[str, int], int] = {}
    out = []
    for rows in batches:
        for region, row_id, key in rows:
            seen[region] = seen.get(region, 0) + 1
            of_key[region, key] = of_key.get((region, key), 0) + 1
            out.append((region, row_id, seen[region], of_key[region, key]))
    return sorted(out)


def output_of(folder: Path) -> list[tuple[Any, ...]]:
    """All rows that a reader of the output folder sees."""
    files = sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(file) for file in files]
    rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    return sorted(rows)


class Gate:
    """Holds callers until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        if not self._open.wait(timeout=60):
            raise TimeoutError("the test did not open the gate")

    def open(self) -> None:
        self._open.set()


def quarantining(path: Path, operator: Operator, **options: Any) -> LocalQuery:
    """A pipeline in a folder, whose stuck regions go into quarantine."""
    chain = regional(region_by="region").apply(operator, schema=COUNTED, name="count")
    given = {"quarantine_after": 3, **options}
    return chain.write_parquet(path / "out").open_local(path / "ckpt", **given)


def run_batches(
    query: LocalQuery, batches: Sequence[Sequence[Row]], *, tasks: int, first: int = 0
) -> None:
    """Run batches, which have ascending numbers."""
    for number, rows in enumerate(batches, start=first):
        query.run_batch(partitions_of(rows, tasks), batch_id=number)


def _batches(rows: Sequence[Row], slices: int) -> list[pa.RecordBatch]:
    if not rows:
        return []
    columns: Any = list(zip(*rows, strict=True))
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, ROWS, strict=True)
    ]
    whole = pa.RecordBatch.from_arrays(arrays, schema=ROWS)
    step = -(-len(rows) // slices)
    return [whole.slice(start, step) for start in range(0, len(rows), step)]
