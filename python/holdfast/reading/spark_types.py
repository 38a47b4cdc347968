"""Types of Spark as types of Arrow, and as the codes by which the core reads rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

#: Arrow has no interval of months that PyArrow knows.
_SIMPLE: Final[Mapping[str, tuple[Any, str]]] = {
    "void": (pa.null(), "n"),
    "boolean": (pa.bool_(), "b"),
    "byte": (pa.int8(), "i1"),
    "short": (pa.int16(), "i2"),
    "integer": (pa.int32(), "i4"),
    "long": (pa.int64(), "i8"),
    "float": (pa.float32(), "f4"),
    "double": (pa.float64(), "f8"),
    "string": (pa.string(), "s"),
    "binary": (pa.binary(), "x"),
    "date": (pa.date32(), "i4"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "i8"),
    "timestamp_ntz": (pa.timestamp("us"), "i8"),
    "interval": (pa.month_day_nano_interval(), "c"),
    "variant": (pa.struct([("value", pa.binary()), ("metadata", pa.binary())]), "v"),
    # No type of Spark.
    "whole": (pa.binary(), "w"),
}

#: The only column of keys or values that are no rows of Spark: all their bytes.
WHOLE: Final[Mapping[str, Any]] = {"name": "bytes", "type": "whole"}

_LONG_DIGITS: Final = 18
_PARAMETRIC: Final[Sequence[tuple[str, Callable[[Any], tuple[Any, str]]]]] = [
    (r"decimal\((\d+), ?(-?\d+)\)", lambda found: _decimal(int(found[1]), int(found[2]))),
    (r"(?:var)?char\(\d+\)", lambda _: _SIMPLE["string"]),
    (r"time\(\d\)", lambda _: (pa.time64("ns"), "i8")),
    (r"interval (year|month)( to month)?", lambda _: (pa.month_day_nano_interval(), "m")),
    (r"interval (day|hour|minute|second)( to \w+)?", lambda _: (pa.duration("us"), "i8")),
]


def arrow_type(column: str, kind: Any) -> tuple[Any, str]:
    """Return the type of Arrow, and the code of the core, of a type in the JSON of a schema.

    Raises a NotImplementedError, with the name of the column, for a type without both.
    """
    if isinstance(kind, str):
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        for pattern, make in _PARAMETRIC:
            if (found := re.fullmatch(pattern, kind)) is not None:
                return make(found)
    elif kind["type"] == "struct":
        types = [arrow_type(column, field["type"]) for field in kind["fields"]]
        named = zip(kind["fields"], types, strict=True)
        fields = [pa.field(field["name"], arrow) for field, (arrow, _) in named]
        return pa.struct(fields), f"r({''.join(code for _, code in types)})"
    elif kind["type"] == "array":
        element, code = arrow_type(column, kind["elementType"])
        return pa.list_(element), f"l({code})"
    elif kind["type"] == "map":
        (key, first), (value, second) = (
            arrow_type(column, kind[part]) for part in ("keyType", "valueType")
        )
        return pa.map_(key, value), f"p({first}{second})"
    elif kind["type"] == "udt":
        return arrow_type(column, kind["sqlType"])
    raise NotImplementedError(
        f"column {column!r} has the type {kind}, which cannot be read without Spark: use Spark's "
        'reader, spark.read.format("statestore")'
    )


def _decimal(precision: int, scale: int) -> tuple[Any, str]:
    return pa.decimal128(precision, scale), "d" if precision <= _LONG_DIGITS else "D"


def built_array(kind: Any, parts: tuple[int, int, Sequence[Any], Sequence[Any]]) -> pa.Array:
    """Return the array of a type from the parts that the core built."""
    rows, nulls, (validity, offsets, values), children = parts
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    # The values of nested types are in their children.
    values = None if children else values
    own = [] if pa.types.is_struct(kind) else [one for one in (offsets, values) if one is not None]
    buffers = [None if one is None else pa.py_buffer(one) for one in (validity, *own)]
    inner = [built_array(kind.field(at).type, child) for at, child in enumerate(children)]
    return pa.Array.from_buffers(kind, rows, buffers, nulls, children=inner)


def lent_array(array: Any) -> tuple[int, int, list[Any], list[Any]]:
    """Return an array of keys as the core takes it: its own buffers, and fields of a struct."""
    buffers = array.buffers()
    if pa.types.is_struct(array.type):
        # They have the offset of the struct, and nulls of their own.
        fields = [array.field(at) for at in range(array.type.num_fields)]
        return len(array), array.offset, [buffers[0], None, None], [*map(lent_array, fields)]
    validity, *others = buffers if buffers else [None]
    offsets, values = others if len(others) == 2 else (None, *(others or [None]))
    return len(array), array.offset, [validity, offsets, values], []
