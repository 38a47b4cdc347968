"""Check that readers of Parquet files get the columns that a pipeline declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

#: Parquet's logical types that Spark reads as the same types.
_READ: Final = {"NONE", "STRING", "ENUM", "JSON", "BSON", "INT", "DECIMAL", "DATE", "TIMESTAMP"}

#: Spark's limit.
_DECIMAL_DIGITS: Final = 38

#: Marks of the structs in which Spark hands these types to Python. A file does not keep them.
_SPARK_ONLY: Final = {b"variant", b"geometry", b"geography"}


def require_readable(schema: pa.Schema, *, by: str) -> None:
    """Check that Spark and PyArrow read every column of a Parquet file in its type.

    `by` is the option or sink that writes it. Raises a ValueError with each column that they do
    not read so, and a type to declare instead.
    """
    wrong = [
        f"column {field.name!r} is {field.type}: {problem}"
        for field in schema
        if (problem := _problem_of(field)) is not None
    ]
    if (same := _same_name(schema.names)) is not None:
        wrong.append(f"the columns {same} are one for Spark: rename one")
    if not schema.names:
        wrong.append("the schema has no column, and a file without columns has no rows")
    if wrong:
        raise ValueError(
            f"{by} cannot write what the schema given to apply() declares, so that Spark and "
            f"PyArrow read it: {'; '.join(wrong)}"
        )


def kinds_of(kind: Any) -> Iterator[Any]:
    """Yield a type and the types of its parts."""
    yield kind
    if isinstance(kind, pa.BaseExtensionType):
        yield from kinds_of(kind.storage_type)
    elif pat.is_dictionary(kind):
        yield from kinds_of(kind.value_type)
    else:
        for position in range(kind.num_fields):
            yield from kinds_of(kind.field(position).type)


def _problem_of(field: pa.Field) -> str | None:
    """Say why readers would not get a column, and which type to declare instead."""
    for kind in kinds_of(field.type):
        if pat.is_null(kind):
            return "Spark reads int; declare the type that its values will have"
        if pat.is_duration(kind):
            return "Spark reads bigint; declare int64, and name the unit in the column's name"
        if pat.is_fixed_size_list(kind) and kind.list_size == 0:
            return "PyArrow cannot read lists of size 0; declare a list"
        if pat.is_struct(kind):
            if (same := _same_name([part.name for part in kind])) is not None:
                return f"the fields {same} are one for Spark; rename one"
            if any(_SPARK_ONLY.intersection(part.metadata or ()) for part in kind):
                return "readers get the struct in which Spark encodes it; declare a string"
    try:
        leaves = list(_leaves(field))
    except (pa.ArrowException, OSError) as error:
        return f"Parquet has no such type ({error}); declare another one"
    return next(filter(None, map(_problem_of_leaf, leaves)), None)


def _problem_of_leaf(leaf: Any) -> str | None:
    name = leaf.logical_type.type
    if name not in _READ:
        return f"Spark reads no {name} of Parquet; declare a string, or a number"
    if name == "DECIMAL" and leaf.precision > _DECIMAL_DIGITS:
        return f"Spark's decimals have at most {_DECIMAL_DIGITS} digits; declare a string"
    if name == "TIMESTAMP" and json.loads(leaf.logical_type.to_json())["timeUnit"] == "nanoseconds":
        return "Spark reads no nanoseconds; declare microseconds, to which whole ones are cast"
    return None


def _leaves(field: pa.Field) -> Iterator[Any]:
    """Yield the columns that one of Arrow becomes in a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, pa.schema([field])).close()
    written = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    for position in range(len(written)):
        yield written.column(position)


def _same_name(names: Sequence[str]) -> str | None:
    """Return the first names that differ only in their case, or not at all."""
    seen: dict[str, str] = {}
    for name in names:
        if (key := name.lower()) in seen:
            return f"{seen[key]!r} and {name!r}"
        seen[key] = name
    return None
