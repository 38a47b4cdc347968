"""Spark reads what a regional pipeline's Parquet sink has published, and nothing else of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.regions.sinks import ParquetSink

ROWS = [
    {
        "row": 1,
        "at": dt.datetime(2024, 7, 1, 12, 30, 0, 5),
        "price": Decimal("1.50"),
        "tags": ["x"],
    },
    {"row": 2, "at": None, "price": None, "tags": []},
]
SCHEMA = pa.schema(
    {
        "row": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
    }
)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "lz4", "none"])
def test_spark_reads_published_rows_and_leaves_out_staged_ones(
    spark: SparkSession, tmp_path: Path, compression: Any
) -> None:
    sink = ParquetSink(tmp_path / "out", compression=compression)
    staged = {}
    for region in ("JFK", "failed"):
        with sink.writer(region, 1, SCHEMA) as writer:
            writer.write(pa.RecordBatch.from_pylist(ROWS, SCHEMA))
            staged[region] = writer.close()
    assert staged["JFK"] is not None
    sink.commit(1, [staged["JFK"]])
    # A stream of files looks into the folder by itself, as a reader of tables does.
    for reader in (spark.read, spark.read.option("recursiveFileLookup", "true")):
        found = reader.parquet(str(tmp_path / "out")).orderBy("row").collect()
        assert [row.asDict() for row in found] == ROWS
