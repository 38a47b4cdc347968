"""Spark reads what a regional pipeline's Parquet sink has published, and nothing else of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.regions.base.normal_form import normal_form
from holdfast.regions.sinks import ParquetSink
from support.regional.parquet_types import READ

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


def test_spark_reads_the_types_that_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    names = [f"c{number}" for number in range(len(READ))]
    columns = []
    for kind, (values, _) in READ.items():
        storage: Any = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        column = pa.array(values, storage)
        columns.append(column if storage == kind else pa.ExtensionArray.from_storage(kind, column))
    rows = normal_form(pa.RecordBatch.from_arrays(columns, names=names))
    sink.require_fit(rows.schema)
    with sink.writer("a", 1, rows.schema) as writer:
        writer.write(rows)
        staged = writer.close()
    assert staged is not None
    assert sink.persist([writer], None) == [None]
    sink.commit(1, [staged])
    found = spark.read.parquet(str(sink.root))
    assert dict(found.dtypes) == {
        name: spark_type for name, (_, spark_type) in zip(names, READ.values(), strict=True)
    }
    for name, kind in zip(names, READ, strict=True):
        values = found.select(name).toArrow()[name].to_pylist()
        assert values == READ[kind][0], name
