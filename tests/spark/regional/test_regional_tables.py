"""Tables of regional pipelines in the executors of real Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import rows_of
from support.spark.mini_hdfs import MiniHdfs
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.versions]

REGIONS = ["bern", "chur"]
KEYS = 50_000
FOUND = pa.schema([("region", pa.string()), ("keys", pa.int64()), ("sum", pa.int64())])


class Large(holdfast.Operator):
    """Begins with many keys, in a table or an array, and changes few of them in a batch."""

    region_safe = True

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.region = ctx.region
        if self.kind == "array":
            self.array = ctx.state.array("numbers", shape=8 * KEYS, dtype="int64")
        else:
            self.table = ctx.state.table("numbers", key=pa.int64(), value=pa.int64())

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        ids = batch.column("id").to_numpy() % KEYS
        if self.kind == "array":
            if not self.array[0]:
                self.array[:] = np.random.default_rng(0).integers(1, 2**60, 8 * KEYS)
            self.array[ids] = 7
            found = [[self.region], [8 * KEYS], [int((self.array == 7).sum())]]
        else:
            if not len(self.table):
                numbers = np.random.default_rng(0).integers(1, 2**60, KEYS)
                self.table.upsert(np.arange(KEYS), numbers)
            self.table.upsert(ids, np.full(len(ids), 7))
            values = pa.Table.from_batches(self.table.scan())["value"].to_numpy()
            found = [[self.region], [len(self.table)], [int((values == 7).sum())]]
        yield pa.table(found, schema=FOUND)


@pytest.mark.parametrize("kind", ["table", pytest.param("array", marks=pytest.mark.full)])
def test_a_restart_writes_what_changed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    segments = tmp_path / "ckpt" / "segments"
    known: set[str] = set()
    written = []
    for number in range(3):
        write_rows(tmp_path / "in", number, rows_of(number, REGIONS, each=20))
        query = (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(Large(kind), schema=FOUND, name="large")
            .write_parquet(tmp_path / "out")
            .start(tmp_path / "ckpt", trigger={"availableNow": True})
        )
        query.awaitTermination()
        new = {file.name: file.stat().st_size for file in segments.iterdir()}
        written.append(sum(size for name, size in new.items() if name not in known))
        known = set(new)
    # An array writes the chunks that changed.
    few = 50_000 if kind == "table" else 2 * (1 << 20) + 50_000
    assert written[0] > 5 * few / 2
    assert max(written[1:]) < few, written
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert max(row["sum"] for row in rows) > 40
    assert {row["keys"] for row in rows} == {KEYS if kind == "table" else 8 * KEYS}


class Everything(holdfast.Operator):
    """Counts rows by id in a table and a map, and keeps all ids in a list."""

    region_safe = True

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.region = ctx.region
        self.table = ctx.state.table("table", key={"id": pa.int64()}, value=pa.int64())
        self.map = ctx.state.map("map")
        self.list = ctx.state.list("list")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        if not len(self.table):
            ids = np.arange(20_000)
            self.table.upsert(pa.table({"id": ids, "value": 0 * ids}))
            self.map.update(dict.fromkeys(range(20_000), 0))
        for number in batch.column("id").to_pylist():
            self.table[number] = self.table[number] + 1
            self.map[number] += 1
            self.list.items.extend([number] * 1000)
        sums = [sum(batch["value"].to_numpy().sum() for batch in self.table.scan())]
        sums.append(sum(self.map.values()))
        yield pa.table(
            [[self.region], [len(self.list)], [int(sums[0] * 1000 + sums[1])]], schema=FOUND
        )


@pytest.mark.full
def test_tables_and_large_states_go_on_and_are_copied_and_divided_on_hdfs(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    uri = f"{hdfs.uri}/{tmp_path.name}"

    def start(folder: str, parallelism: int = 1, **options: Any) -> holdfast.RegionalQuery:
        route = {"parallelism": parallelism, "route_by": "id"} if parallelism > 1 else {}
        return (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(Everything(), schema=FOUND, name="everything", **route)
            .write_parquet(tmp_path / "out")
            .start(folder, name="everything", **options)
        )

    saved, divided = f"{uri}/saved", f"{uri}/divided"
    places: list[tuple[str, int, str | None]] = [
        (f"{uri}/first", 1, None),
        (f"{uri}/first", 1, None),
        (f"{uri}/second", 1, saved),
        (divided, 2, f"{uri}/second"),
        (str(tmp_path / "mounted"), 1, divided),
        (f"{uri}/last", 3, str(tmp_path / "mounted")),
    ]
    for number, (folder, parallelism, origin) in enumerate(places):
        write_rows(tmp_path / "in", number, rows_of(number, REGIONS, each=20))
        before = set((tmp_path / "out").rglob("*.parquet"))
        options = {"restore": holdfast.restore(origin)} if origin else {}
        query = start(folder, parallelism, **options)
        query.processAllAvailable()
        if number == 1:
            query.stop_with_savepoint(f"{uri}/saved")
        else:
            query.stop()
        assert query.exception() is None
        new = sorted(set((tmp_path / "out").rglob("*.parquet")) - before)
        rows = pq.read_table(new).to_pylist()
        count = 20 * (number + 1)
        for region in REGIONS:
            of_region = [row for row in rows if row["region"] == region]
            assert len(of_region) == parallelism
            assert sum(row["keys"] for row in of_region) == 1000 * count
            assert sum(row["sum"] for row in of_region) == 1001 * count
