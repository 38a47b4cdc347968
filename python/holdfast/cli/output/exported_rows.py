"""Rows that a command writes for other programs: no format changes a value.

JSON has times as text in UTC, bytes as base64, and other types that it lacks as text or as a list.
Parquet has types that it lacks as JSON.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

#: Ways to write rows to stdout.
FORMATS: Final = ("json", "arrow", "parquet")

_JSON_OF_SPARK: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def require_no_terminal(form: str) -> None:
    """Raise ValueError for a terminal as stdout and a format that is not for one."""
    if form != "json" and sys.stdout.isatty():
        raise ValueError(f"--rows {form} writes bytes: send them to a file with '>'")


def write_frame(rows: DataFrame, form: str) -> None:
    """Write rows of Spark to stdout, in one of `FORMATS`."""
    if form != "json":
        write(to_arrow(rows), form)
        return
    from pyspark.sql import functions as F

    plain = [_plain(F.col(_quoted(of.name)), of.dataType).alias(of.name) for of in rows.schema]
    for line in rows.select(F.to_json(F.struct(*plain), _JSON_OF_SPARK)).toLocalIterator():
        print(line[0])


def to_arrow(rows: DataFrame) -> pa.Table:
    """Return rows of Spark; intervals that Arrow does not have are text."""
    from pyspark.sql import functions as F

    for of in rows.schema:
        if (kind := _with_text(of.dataType)) != of.dataType:
            rows = rows.withColumn(of.name, F.col(_quoted(of.name)).cast(kind))
    return rows.toArrow()


def write(rows: pa.Table, form: str) -> None:
    """Write rows to stdout, in one of `FORMATS`."""
    import pyarrow as pa

    if form == "arrow":
        with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
            stream.write_table(rows)
    elif form == "parquet":
        write_parquet(rows, sys.stdout.buffer)
    else:
        for batch in rows.to_batches():
            for row in zip(*map(_values, batch.columns), strict=True):
                print(_json(dict(zip(rows.schema.names, row, strict=True))))


def write_parquet(rows: pa.Table, to: BinaryIO) -> None:
    """Write rows as a Parquet file."""
    import pyarrow.parquet as pq

    pq.write_table(for_parquet(rows), to)


def for_parquet(rows: pa.Table) -> pa.Table:
    """Return rows with JSON in place of types that Parquet lacks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, field in enumerate(rows.schema):
        try:
            pq.write_table(rows.select([number]).slice(0, 0), pa.BufferOutputStream())
        except pa.ArrowNotImplementedError:
            texts = [None if one is None else _json(one) for one in _values(rows[number])]
            rows = rows.set_column(number, field.name, pa.array(texts, pa.string()))
    return rows


def shown(rows: pa.Table) -> list[list[str]]:
    """Return rows as texts for people: JSON, without the quotes of texts."""
    columns = [map(_shown, _values(column)) for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _plain(value: Column, kind: DataType) -> Column:
    """Return a value of Spark with all its content as JSON, whose keys are strings."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda one: _plain(one, element))
    if isinstance(kind, MapType):
        key, of = kind.keyType, kind.valueType
        if isinstance(key, StringType):
            return F.transform_values(value, lambda _, one: _plain(one, of))
        entry = StructType().add("key", key).add("value", of)
        return F.transform(F.map_entries(value), lambda one: _plain(one, entry))
    if isinstance(kind, StructType):
        fields = [_plain(value[of.name], of.dataType).alias(of.name) for of in kind]
        return F.when(value.isNotNull(), F.struct(*fields)) if fields else value
    return value


def _with_text(kind: DataType) -> DataType:
    """Return a type with text for intervals that Arrow does not have.

    All fields may be null: in a struct that is null, PySpark refuses fields without nulls.
    """
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_with_text(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        value = _with_text(kind.valueType)
        return T.MapType(_with_text(kind.keyType), value, kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        fields = [T.StructField(of.name, _with_text(of.dataType)) for of in kind]
        return T.StructType(fields)
    intervals = (T.YearMonthIntervalType, T.CalendarIntervalType)
    return T.StringType() if isinstance(kind, intervals) else kind


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _values(column: Any) -> list[Any]:
    """Return a column of Arrow as values of JSON, most of them without a look at each value."""
    import pyarrow.types as pat

    kind = column.type
    if pat.is_integer(kind) or pat.is_boolean(kind) or pat.is_string(kind) or pat.is_null(kind):
        found: list[Any] = column.to_pylist()
        return found
    return [_value(one) for one in column]


def _value(scalar: Any) -> Any:
    """Return a scalar of Arrow as values of JSON."""
    import pyarrow as pa
    import pyarrow.types as pat

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pat.is_struct(kind):
        return {field.name: _value(scalar[at]) for at, field in enumerate(kind)}
    if pat.is_map(kind):
        entries = [_value(entry) for entry in scalar.values]
        is_text = pat.is_string(kind.key_type) or pat.is_large_string(kind.key_type)
        return {one["key"]: one["value"] for one in entries} if is_text else entries
    if pat.is_nested(kind) and hasattr(scalar, "values"):
        return [_value(one) for one in scalar.values]
    wrapped = (pa.DictionaryScalar, pa.ExtensionScalar, pa.RunEndEncodedScalar, pa.UnionScalar)
    if isinstance(scalar, wrapped):
        return _value(scalar.value)
    if pat.is_temporal(kind) and not pat.is_interval(kind):
        return _time(scalar)
    value = scalar.as_py()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON lacks these numbers; the texts are Spark's.
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if pat.is_interval(kind):
        return dict(zip(("months", "days", "nanoseconds"), value, strict=True))
    return value


def _time(scalar: Any) -> str:
    """Return a time, date or duration in ISO 8601, with all digits of its unit."""
    import pyarrow as pa
    import pyarrow.types as pat

    kind = scalar.type
    if pat.is_duration(kind):
        seconds = Decimal(scalar.value).scaleb(-_DIGITS[kind.unit])
        return f"PT{seconds:f}S"
    if pat.is_timestamp(kind) and kind.tz:
        scalar = scalar.cast(pa.timestamp(kind.unit, "UTC"))
    text = str(scalar.cast(pa.string())).replace(" ", "T")
    # Arrow cannot write every year. The number counts units of the type since 1970.
    return text if not text.startswith("<") else f"{scalar.value} {kind}"
