"""State that operators declare in another form than the checkpoint has it in, on real Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import COUNTED, KEYS, RunningCount, expected, output_of, rows_of
from support.spark.regional_input import regional_source, write_rows

# Python workers do not find this module: its classes travel as they are.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.spark

REGIONS = ["r0", "r1", "r2"]


class OnWorkers(RunningCount):
    """Declares an array of some length, and opens in tasks only."""

    def __init__(self, length: int, *, grows: bool = False) -> None:
        self.length = length
        self.grows = grows

    def open(self, ctx: holdfast.OperatorContext) -> None:
        if TaskContext.get() is None:
            raise RuntimeError("there is no such device here")
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)
        self.by_key = ctx.state.array(
            "by_key",
            shape=self.length,
            dtype="int64",
            evolve=(lambda old: [*old, 0, 0]) if self.grows else None,
        )

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return super().process(batch)


def run(spark: SparkSession, path: Path, operator: OnWorkers, **options: Any) -> None:
    query = (
        holdfast.regional(regional_source(spark, path / "in"), region_by="region")
        .apply(operator, schema=COUNTED, name="count")
        .write_parquet(path / "out")
        .start(path / "ckpt", trigger={"availableNow": True}, **options)
    )
    query.awaitTermination()


def test_workers_say_what_they_declare_before_anything_is_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [rows_of(0, REGIONS)]
    write_rows(tmp_path / "in", 0, batches[0])
    run(spark, tmp_path, OnWorkers(KEYS))
    # The regions of the checkpoint have no rows in this batch.
    batches.append(rows_of(1, ["new"]))
    write_rows(tmp_path / "in", 1, batches[1])
    with pytest.raises(holdfast.LayoutChangedError, match=r"'by_key' .* shape \(8,\).*\(10,\)"):
        run(spark, tmp_path, OnWorkers(KEYS + 2))
    assert output_of(tmp_path / "out") == expected(batches[:1])
    run(spark, tmp_path, OnWorkers(KEYS + 2, grows=True))
    batches.append(rows_of(2, REGIONS))
    write_rows(tmp_path / "in", 2, batches[2])
    run(spark, tmp_path, OnWorkers(KEYS + 2))
    assert output_of(tmp_path / "out") == expected(batches)
