"""Types of columns, with values, and the types that Spark reads from their Parquet files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

NOON = dt.datetime(2026, 3, 29, 12, 0, 1)
UTC_NOON = NOON.replace(tzinfo=dt.UTC)

# By type: values, and Spark's type.
READ: dict[pa.DataType, tuple[list[Any], str]] = {
    pa.bool_(): ([True, None], "boolean"),
    pa.int8(): ([-128, None], "tinyint"),
    pa.int16(): ([-(2**15), None], "smallint"),
    pa.int32(): ([-(2**31), None], "int"),
    pa.int64(): ([-(2**63), None], "bigint"),
    pa.uint8(): ([255, None], "smallint"),
    pa.uint16(): ([2**16 - 1, None], "int"),
    pa.uint32(): ([2**32 - 1, None], "bigint"),
    pa.uint64(): ([2**64 - 1, None], "decimal(20,0)"),
    pa.float32(): ([0.5, None], "float"),
    pa.float64(): ([0.1, None], "double"),
    pa.decimal32(5, 1): ([Decimal("1.5"), None], "decimal(5,1)"),
    pa.decimal128(38, 10): ([Decimal("1.5000000001"), None], "decimal(38,10)"),
    pa.decimal256(38, 0): ([Decimal(10**37), None], "decimal(38,0)"),
    pa.date32(): ([NOON.date(), None], "date"),
    pa.date64(): ([NOON.date(), None], "date"),
    pa.timestamp("s"): ([NOON, None], "timestamp_ntz"),
    pa.timestamp("us"): ([NOON, None], "timestamp_ntz"),
    pa.timestamp("ms", "UTC"): ([UTC_NOON, None], "timestamp"),
    pa.timestamp("us", "Asia/Tokyo"): ([UTC_NOON, None], "timestamp"),
    pa.string(): (["a", None], "string"),
    pa.large_string(): (["a", None], "string"),
    pa.string_view(): (["a", None], "string"),
    pa.binary(): ([b"a", None], "binary"),
    pa.binary(2): ([b"ab", None], "binary"),
    pa.binary_view(): ([b"a", None], "binary"),
    pa.list_(pa.int64()): ([[1], None], "array<bigint>"),
    pa.list_(pa.int64(), 2): ([[1, None], None], "array<bigint>"),
    pa.list_view(pa.int64()): ([[1], None], "array<bigint>"),
    pa.map_(pa.string(), pa.int64()): ([[("a", 1)], None], "map<string,bigint>"),
    pa.struct([("x", pa.int64())]): ([{"x": 1}, None], "struct<x:bigint>"),
    pa.dictionary(pa.int8(), pa.string()): (["a", None], "string"),
    pa.dictionary(pa.int8(), pa.int64()): ([1, None], "bigint"),
    pa.json_(): (["{}", None], "string"),
}

# With the error of the start.
REFUSED: dict[pa.DataType, str] = {
    pa.timestamp("ns"): "Spark reads no nanoseconds; declare microseconds",
    pa.list_(pa.timestamp("ns", "UTC")): "Spark reads no nanoseconds",
    pa.dictionary(pa.int32(), pa.timestamp("ns")): "Spark reads no nanoseconds",
    pa.duration("us"): "Spark reads bigint; declare int64",
    pa.struct([("x", pa.duration("s"))]): "Spark reads bigint",
    pa.time32("ms"): "Spark reads no TIME",
    pa.time64("us"): "Spark reads no TIME",
    pa.float16(): "Spark reads no FLOAT16",
    pa.uuid(): "Spark reads no UUID",
    pa.null(): "Spark reads int; declare the type",
    pa.list_(pa.null()): "Spark reads int",
    pa.decimal256(39, 0): "Spark's decimals have at most 38 digits",
    pa.decimal128(5, -2): "Parquet has no such type",
    pa.month_day_nano_interval(): "Parquet has no such type",
    pa.dense_union([pa.field("a", pa.int64())]): "Parquet has no such type",
    pa.struct([]): "Parquet has no such type",
    pa.map_(pa.string(), pa.struct([])): "Parquet has no such type",
    pa.binary(0): "Parquet has no such type",
    pa.list_(pa.int64(), 0): "PyArrow cannot read lists of size 0",
    pa.struct([("x", pa.int64()), ("X", pa.int64())]): "the fields 'x' and 'X' are one for Spark",
    pa.struct([("x", pa.int64()), ("x", pa.int64())]): "the fields 'x' and 'x' are one for Spark",
}
