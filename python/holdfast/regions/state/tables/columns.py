"""Columns of tables: which Arrow types they may have, and their buffers for the core."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from holdfast._exact import exact_array
from holdfast.regions.base.problem import message_of
from holdfast.regions.base.saved import StateError

Given: TypeAlias = "pa.DataType | pa.Schema | Mapping[str, pa.DataType]"
"""Columns as a program names them; a single type means one column without a name."""

ColumnBuffers: TypeAlias = tuple[str, str, int, int, Any, Any, Any]
"""A column as `TableSession` takes it."""

_LAYOUTS: Final[Mapping[int, str]] = {
    pa.lib.Type_BOOL: "b1",
    pa.lib.Type_INT8: "i1",
    pa.lib.Type_INT16: "i2",
    pa.lib.Type_INT32: "i4",
    pa.lib.Type_INT64: "i8",
    pa.lib.Type_UINT8: "u1",
    pa.lib.Type_UINT16: "u2",
    pa.lib.Type_UINT32: "u4",
    pa.lib.Type_UINT64: "u8",
    pa.lib.Type_FLOAT: "f4",
    pa.lib.Type_DOUBLE: "f8",
    pa.lib.Type_STRING: "s",
    pa.lib.Type_BINARY: "s",
    pa.lib.Type_DATE32: "i4",
    pa.lib.Type_DATE64: "i8",
    pa.lib.Type_TIME32: "i4",
    pa.lib.Type_TIME64: "i8",
    pa.lib.Type_TIMESTAMP: "i8",
    pa.lib.Type_DURATION: "i8",
    pa.lib.Type_DECIMAL128: "i16",
}

Rows: TypeAlias = "pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray | Sequence[object]"
"""Rows of keys or values: columns by name, or the only column."""


@dataclass(frozen=True)
class Columns:
    """The columns of the key, or of the value, of a table.

    `where` is the state, for messages. `single` columns were given as one type, so an array is
    enough for them.
    """

    where: str
    schema: pa.Schema
    single: bool

    @classmethod
    def of(cls, given: Given, *, name: str, where: str) -> Columns:
        """Check the columns that a program gives for `name`, "key" or "value"."""
        single = isinstance(given, pa.DataType)
        try:
            schema = pa.schema({name: given} if single else given)
        except (TypeError, ValueError) as e:
            raise StateError(
                f"{where}: {name}={given!r} is not allowed: expected an Arrow type, a schema, or a "
                f"dict of names and types ({message_of(e)})"
            ) from None
        if not schema.names or len(set(schema.names)) != len(schema.names):
            raise StateError(f"{where}: {name} needs at least one column, each with its own name")
        for field in schema:
            if field.type.id not in _LAYOUTS:
                raise StateError(
                    f"{where}: column {field.name!r} of type {field.type} cannot be kept in a "
                    "table; use booleans, integers, float32 or float64, strings, binary, dates, "
                    "times, timestamps, durations or decimal128"
                )
        return cls(where, schema.remove_metadata(), single)

    @classmethod
    def saved(cls, described: Sequence[Sequence[str]], *, where: str) -> Columns:
        """Return the columns that `described` describes."""
        fields = [(name, _type_of(text)) for name, text in described]
        return cls.of(pa.schema(fields), name="key", where=where)

    @property
    def layouts(self) -> list[str]:
        """The layout of each column in the core."""
        return [_LAYOUTS[field.type.id] for field in self.schema]

    @property
    def described(self) -> list[list[str]]:
        """Names and types, for checkpoints."""
        return [[field.name, str(field.type)] for field in self.schema]

    def buffers(self, rows: Rows) -> list[ColumnBuffers]:
        """Return the columns of rows; ignores other columns of the rows."""
        return [_given(field, self._array(rows, field)) for field in self.schema]

    def row(self, values: object, *, whole: bool = True) -> list[ColumnBuffers]:
        """Return the columns of a value, tuple or dict: all, or the first ones if not `whole`."""
        if isinstance(values, Mapping):
            names = list(values)
            given: Sequence[object] = [values[name] for name in self.schema.names if name in values]
        else:
            given = list(values) if isinstance(values, (tuple, list)) else [values]
            names = self.schema.names[: len(given)]
        expected = self.schema.names if whole else self.schema.names[: len(names)]
        if not given or sorted(names) != sorted(expected) or len(given) > len(self.schema):
            most = "" if whole else ", or the first ones of them"
            raise StateError(
                f"{self.where}: {values!r} is not allowed: expected values for the columns "
                f"{', '.join(self.schema.names)}{most}"
            )
        fields = list(self.schema)[: len(given)]
        return [
            _given(of, self.column([one], of.name)) for one, of in zip(given, fields, strict=True)
        ]

    def arrays(self, columns: Sequence[tuple[int, Any, Any, Any]], rows: int) -> list[pa.Array]:
        """Return the arrays of columns that the core gave."""
        arrays = []
        for field, (nulls, validity, offsets, values) in zip(self.schema, columns, strict=True):
            has_offsets = _LAYOUTS[field.type.id] == "s"
            given = (validity, offsets, values) if has_offsets else (validity, values)
            buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in given]
            arrays.append(pa.Array.from_buffers(field.type, rows, buffers, null_count=nulls))
        return arrays

    def batch(self, columns: Sequence[ColumnBuffers]) -> pa.RecordBatch:
        """Return the rows of `buffers`, or of `row`."""
        arrays = [
            pa.Array.from_buffers(
                field.type,
                rows,
                [validity, values] if offsets is None else [validity, offsets, values],
                offset=offset,
            )
            for field, (_, _, rows, offset, validity, offsets, values) in zip(
                self.schema, columns, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def column(self, values: Any, name: str) -> pa.Array:
        """Return values as a column has them; each has to be the same in the declared type."""
        field = self.schema.field(name)
        try:
            return exact_array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise StateError(
                f"{self.where}: column {name!r} is declared as {field.type}: {message_of(e)}"
            ) from None

    def _array(self, rows: Rows, field: pa.Field) -> pa.Array:
        if isinstance(rows, (pa.RecordBatch, pa.Table)):
            if field.name not in rows.schema.names:
                raise StateError(
                    f"{self.where}: the rows have no column {field.name!r}, only "
                    f"{', '.join(map(repr, rows.schema.names))}"
                )
            return self.column(rows.column(field.name), field.name)
        if len(self.schema) > 1:
            raise StateError(
                f"{self.where}: expected a pyarrow.RecordBatch or Table with the columns "
                f"{', '.join(self.schema.names)}, found {type(rows).__name__}"
            )
        return self.column(rows, field.name)


def description(key: Columns, value: Columns, **more: str) -> str:
    """Return the columns of a table as text that is equal for equal columns.

    `more` is ``ttl``, the column that the lives of rows count from, or ``time`` of timers.
    """
    columns = {"key": key.described, "value": value.described, **more}
    return json.dumps(columns, separators=(",", ":"))


def _type_of(text: str) -> pa.DataType:
    """Return the type of this name."""
    if found := re.fullmatch(r"timestamp\[(\w+), tz=(.+)\]", text):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"decimal128\((\d+), (-?\d+)\)", text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return pa.type_for_alias(text)


def _given(field: pa.Field, array: pa.Array) -> ColumnBuffers:
    validity, *offsets, values = array.buffers()
    buffers = validity, offsets[0] if offsets else None, values
    return field.name, _LAYOUTS[field.type.id], len(array), array.offset, *buffers
