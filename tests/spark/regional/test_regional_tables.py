"""Tables of regional pipelines in the executors of real Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import rows_of
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
