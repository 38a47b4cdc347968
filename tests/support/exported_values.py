"""A value of each type of Arrow, and its form in JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

DIGITS = Decimal("12345678901234567890123456789012345.678")

#: By name: a value for Arrow, its type, and the value in JSON.
VALUES: dict[str, tuple[Any, pa.DataType, Any]] = {
    "flag": (True, pa.bool_(), True),
    "int8": (-128, pa.int8(), -128),
    "uint64": (2**64 - 1, pa.uint64(), 2**64 - 1),
    "int64": (2**53 + 1, pa.int64(), 2**53 + 1),
    "half": (np.float16(0.1), pa.float16(), 0.0999755859375),
    "float": (0.1, pa.float32(), 0.10000000149011612),
    "double": (-0.0, pa.float64(), -0.0),
    "nan": (float("nan"), pa.float64(), "NaN"),
    "infinite": (float("-inf"), pa.float32(), "-Infinity"),
    "decimal": (DIGITS, pa.decimal128(38, 3), str(DIGITS)),
    "decimal256": (DIGITS, pa.decimal256(60, 3), str(DIGITS)),
    "null": (None, pa.null(), None),
    "text": ('a"\n\0ü', pa.string(), 'a"\n\0ü'),
    "large_text": ("a", pa.large_string(), "a"),
    "bytes": (b"\xff\0", pa.binary(), "/wA="),
    "two_bytes": (b"\xff\0", pa.binary(2), "/wA="),
    "word": ("a", pa.dictionary(pa.int32(), pa.string()), "a"),
    "date": (19783, pa.date32(), "2024-03-01"),
    "later": (10**7, pa.date32(), "29349-01-26"),
    "date64": (86_400_000, pa.date64(), "1970-01-02"),
    "second": (1, pa.timestamp("s"), "1970-01-01T00:00:01"),
    "micro": (1, pa.timestamp("us", "UTC"), "1970-01-01T00:00:00.000001Z"),
    "nano": (1, pa.timestamp("ns", "UTC"), "1970-01-01T00:00:00.000000001Z"),
    "in_zone": (1, pa.timestamp("us", "Europe/Zurich"), "1970-01-01T00:00:00.000001Z"),
    "first": (-(2**63) + 1, pa.timestamp("us"), f"{-(2**63) + 1} timestamp[us]"),
    "time": (1, pa.time32("s"), "00:00:01"),
    "nano_time": (1, pa.time64("ns"), "00:00:00.000000001"),
    "duration": (-1, pa.duration("ns"), "PT-0.000000001S"),
    "days": (86_400, pa.duration("s"), "PT86400S"),
    "interval": (
        (1, 2, 3),
        pa.month_day_nano_interval(),
        {"months": 1, "days": 2, "nanoseconds": 3},
    ),
    "times": ([1, None], pa.list_(pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001", None]),
    "pair": ([1, 2], pa.list_(pa.int8(), 2), [1, 2]),
    "fields": (
        {"a": 1, "b": b"\xff"},
        pa.struct({"a": pa.int8(), "b": pa.binary()}),
        {"a": 1, "b": "/w=="},
    ),
    "by_text": ([("a", 1)], pa.map_(pa.string(), pa.date32()), {"a": "1970-01-02"}),
    "by_bytes": ([(b"\xff", 1)], pa.map_(pa.binary(), pa.int8()), [{"key": "/w==", "value": 1}]),
    "nothing": ({}, pa.struct([]), {}),
}
#: Parquet lacks these: there they are JSON.
NOT_IN_PARQUET = {"interval", "nothing"}
