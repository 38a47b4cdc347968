"""A value of each type of Spark, and its forms in JSON and Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

AT = "TIMESTAMP'2024-03-01 10:00:00.123456Z'"
AT_JSON = "2024-03-01T10:00:00.123456Z"
AT_ARROW = datetime(2024, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
DIGITS = "12345678901234567890123456789012345.678"

#: By name: an expression, its value in JSON, and its value in Arrow.
VALUES: dict[str, tuple[str, Any, Any]] = {
    "flag": ("true", True, True),
    "tiny": ("-128Y", -128, -128),
    "long": ("9007199254740993L", 2**53 + 1, 2**53 + 1),
    "float": ("float(0.1)", 0.1, 0.10000000149011612),
    "double": ("-0.0D", -0.0, -0.0),
    "nan": ("double('NaN')", "NaN", "nan"),
    "infinite": ("float('-Infinity')", "-Infinity", float("-inf")),
    "decimal": (f"{DIGITS}BD", Decimal(DIGITS), Decimal(DIGITS)),
    "void": ("null", None, None),
    "text": ("'a\"\\n\\u0000ü'", 'a"\n\0ü', 'a"\n\0ü'),
    "bytes": ("x'ff00'", "/wA=", b"\xff\0"),
    "date": ("DATE'2024-03-01'", "2024-03-01", date(2024, 3, 1)),
    "at": (AT, AT_JSON, AT_ARROW),
    "first": (
        "TIMESTAMP'0001-01-01 00:00:00.000001Z'",
        "0001-01-01T00:00:00.000001Z",
        datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ),
    "local": (
        "TIMESTAMP_NTZ'2024-03-01 10:00:00.123456'",
        AT_JSON[:-1],
        AT_ARROW.replace(tzinfo=None),
    ),
    "time": ("TIME'10:11:12.123456'", "10:11:12.123456", time(10, 11, 12, 123456)),
    "months": ("INTERVAL '3-1' YEAR TO MONTH", *["INTERVAL '3-1' YEAR TO MONTH"] * 2),
    "days": (
        "INTERVAL '1 02:03:04.123456' DAY TO SECOND",
        "INTERVAL '1 02:03:04.123456' DAY TO SECOND",
        timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=123456),
    ),
    "interval": (
        "make_interval(1, 2, 0, 4, 0, 0, 7.5)",
        *["1 years 2 months 4 days 7.5 seconds"] * 2,
    ),
    "times": (f"array({AT}, null)", [AT_JSON, None], [AT_ARROW, None]),
    "fields": (
        f"named_struct('a.b', {AT}, 'm', array(INTERVAL '3' YEAR))",
        {"a.b": AT_JSON, "m": ["INTERVAL '3' YEAR"]},
        {"a.b": AT_ARROW, "m": ["INTERVAL '3' YEAR"]},
    ),
    "by_text": (f"map('a', {AT})", {"a": AT_JSON}, [("a", AT_ARROW)]),
    "by_time": (f"map({AT}, 1)", [{"key": AT_JSON, "value": 1}], [(AT_ARROW, 1)]),
    "by_bytes": ("map(x'ff', x'00')", [{"key": "/w==", "value": "AA=="}], [(b"\xff", b"\0")]),
    "by_fields": (
        "map(named_struct('a', x'ff', 'b', null), map(1L, null))",
        [{"key": {"a": "/w==", "b": None}, "value": [{"key": 1, "value": None}]}],
        [({"a": b"\xff", "b": None}, [(1, None)])],
    ),
    "of`dots.": ("1", 1, 1),
}
