"""Split the rows of a batch by the region that they belong to, and name the regions.

The name of a region depends only on the values of the region columns: not on the batch, the width
of a type or the time zone of a session. Equal names mean equal values, so state is stored under the
name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from holdfast.regions.base.normal_form import normal_array, take_rows
from holdfast.regions.base.owners import MAX_NAME_BYTES

#: Characters that are kept of a name that is too long.
_SHOWN: Final = 64

_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ALLOWED: Final = "strings, integers, decimals, booleans, dates and timestamps"

#: Types of values that `_texts` writes.
_HAVE_TEXTS: Final = (
    pat.is_string,
    pat.is_large_string,
    pat.is_integer,
    pat.is_boolean,
    pat.is_null,
    pat.is_decimal,
    pat.is_date32,
    pat.is_timestamp,
)

#: A byte that is not UTF-8 is read as one of these that end in 80 to ff.
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def split_by_region(
    batch: pa.RecordBatch, *, region_by: str | Sequence[str]
) -> list[tuple[str, pa.RecordBatch]]:
    r"""Split a batch into one batch per region.

    The name of a region is the value itself if there is one column and it holds strings. Otherwise
    it is JSON text: of the value for one column, of the list of values for several. In that text
    numbers have no trailing zeros, dates and timestamps are ISO 8601 strings (with ``Z`` if the
    column has any time zone), and a missing value is ``null``. Strings that would be ambiguous are
    JSON text too: ``null``, every string that begins with a quotation mark, the empty string, and
    strings that are not valid UTF-8, with ``\xff`` for such a byte.

    A name of more than 1 KiB in UTF-8 becomes a quotation mark, its first 64 characters, and its
    SHA-256. No other name has this form: JSON text that begins with a quotation mark ends with one.

    Parameters
    ----------
    region_by : str or sequence of str
        Column(s) whose values identify the region of a row. Their types: strings, integers,
        decimals, booleans, dates, timestamps, and dictionaries and extension types of these.

    Returns
    -------
    list of tuple of (str, pyarrow.RecordBatch)
        Name and rows of each region, regions in the order in which they first appear in the batch,
        rows in the order of the batch. No batch is empty. The batches may share the buffers of one
        sorted copy: a caller that keeps a small one for long should copy it.

    Raises
    ------
    ValueError
        If no column is named, one is named twice, is missing, or is there twice.
    TypeError
        If a column's type cannot identify a region. Floating-point numbers have no stable equality.

    Examples
    --------
    >>> rows = pa.record_batch({"origin": ["JFK", "LGA", "JFK"], "month": [1, 1, 1]})
    >>> [(name, part.num_rows) for name, part in split_by_region(rows, region_by="origin")]
    [('JFK', 2), ('LGA', 1)]
    >>> [name for name, _ in split_by_region(rows, region_by=["origin", "month"])]
    ['["JFK",1]', '["LGA",1]']
    """
    keys = _keys(batch, region_by, of="region_by")
    if batch.num_rows == 0:
        return []
    codes, regions = _codes(keys)
    if regions == 1:
        return [(_bounded(_names(keys, np.zeros(1, np.int64))[0]), batch)]
    # NumPy sorts integers of up to 16 bits by radix, in linear time.
    narrow = codes.astype(np.min_scalar_type(regions - 1), copy=False)
    order = np.argsort(narrow, kind="stable")
    rows = np.bincount(codes, minlength=regions)
    starts = np.cumsum(rows) - rows
    found = map(_bounded, _names(keys, order[starts]))
    # Nothing is copied if the rows of each region arrive together, which is usual.
    is_sorted = bool(np.all(codes[1:] >= codes[:-1]))
    ordered = batch if is_sorted else take_rows(batch, order)
    return [
        (name, ordered.slice(start, count))
        for name, start, count in zip(found, starts.tolist(), rows.tolist(), strict=True)
    ]


def route_codes(
    batch: pa.RecordBatch, *, route_by: str | Sequence[str], of: str = "route_by"
) -> tuple[npt.NDArray[Any], list[str]]:
    """Return the key of each row, see `split_by_region` for types and errors.

    `route_by` has the columns of the key, and `of` names the option in messages.

    Returns
    -------
    tuple of (numpy.ndarray of shape (rows,), list of str)
        Number of each row's key, in the order in which keys first appear, and the keys' names by
        number. Names are those of regions, but of any length.
    """
    keys = _keys(batch, route_by, of=of)
    if batch.num_rows == 0:
        return np.empty(0, np.int64), []
    codes, count = _codes(keys)
    first = np.empty(count, np.int64)
    # The last assignment of a key counts, so rows are written last to first.
    first[codes[::-1]] = np.arange(batch.num_rows - 1, -1, -1)
    return codes, _names(keys, first)


def require_keys(schema: pa.Schema, names: str | Sequence[str], *, of: str) -> None:
    """Raise the errors of `split_by_region` before there are rows."""
    wanted = column_names(names, of=of)
    fields = pa.schema([field for field in schema if field.name in wanted])
    columns = [pa.nulls(0, field.type) for field in fields]
    _keys(pa.RecordBatch.from_arrays(columns, schema=fields), wanted, of=of)


def column_names(names: str | Sequence[str], *, of: str) -> tuple[str, ...]:
    """Return the names of the columns of an option, each once."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for position, name in enumerate(wanted):
        if not isinstance(name, str):
            raise TypeError(f"{of} names columns: expected strings, found {name!r}")
        if name in wanted[:position]:
            raise ValueError(f"{of} names the column {name!r} twice")
    return wanted


def _keys(batch: pa.RecordBatch, names: str | Sequence[str], *, of: str) -> list[pa.Array]:
    """Return the columns in types in which equal values, and no others, have equal texts."""
    wanted = column_names(names, of=of)
    if not wanted:
        raise ValueError(f"{of} names no column: expected at least one")
    return [_key(batch, name, of) for name in wanted]


def _key(batch: pa.RecordBatch, name: str, of: str) -> pa.Array:
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        problem = "is not in the batch" if not found else f"is there {len(found)} times"
        there = ", ".join(map(repr, batch.schema.names)) or "none"
        raise ValueError(
            f"{of}: the column {name!r} {problem}: expected it once among the columns {there}"
        )
    column = batch.column(found[0])
    values = _plain(column)
    if not any(is_of_kind(values.type) for is_of_kind in _HAVE_TEXTS):
        why = (
            ": floating-point numbers have no stable equality; cast it to an integer, a decimal or "
            "a string"
            if pat.is_floating(values.type)
            else f": expected {_ALLOWED}"
        )
        raise TypeError(
            f"{of}: the column {name!r} has type {column.type}, which cannot "
            f"{'name a region' if of == 'region_by' else 'say where a row goes'}{why}"
        )
    return values


def _plain(column: Any) -> pa.Array:
    """Return the same values in a type in which equal values are equal for Arrow."""
    values: Any = normal_array(column)
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(values.storage)
    if pat.is_dictionary(kind):
        return _plain(values.dictionary).take(values.indices)
    if pat.is_date64(kind):
        # Nothing ensures that its milliseconds are whole days.
        return pc.floor_temporal(values, unit="day").cast(pa.date32())
    if pat.is_decimal(kind) and kind.bit_width < 128:
        return values.cast(pa.decimal128(kind.precision, kind.scale))
    return values


def _codes(keys: Sequence[pa.Array]) -> tuple[npt.NDArray[Any], int]:
    """Return each row's region number, shape (rows,), from 0 by first appearance, and the count."""
    codes, count = _encode(keys[0])
    for key in keys[1:]:
        more, distinct = _encode(key)
        # Both factors are below 2^31, the most rows a batch of this size can have: no overflow.
        codes, count = _encode(pa.array(codes.astype(np.int64) * distinct + more))
    return codes, count


def _encode(column: pa.Array) -> tuple[npt.NDArray[Any], int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(), len(encoded.dictionary)


def _names(keys: Sequence[pa.Array], rows: npt.NDArray[np.int64]) -> list[str]:
    """Return the names of the regions of the given rows, of any length."""
    picked = [key.take(pa.array(rows)) for key in keys]
    if len(keys) > 1:
        return [f"[{','.join(parts)}]" for parts in zip(*map(_texts, picked), strict=True)]
    if _is_text(picked[0].type):
        return [name_of_text(text) for text in _strings(picked[0])]
    return _texts(picked[0])


def _bounded(name: str) -> str:
    """Return the name, or the shorter form of a long one that `split_by_region` describes."""
    encoded = name.encode()
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    shown = name.removeprefix('"')[:_SHOWN]
    return f'"{shown}... sha256:{hashlib.sha256(encoded).hexdigest()}'


def name_of_text(text: str | None) -> str:
    """Return the text itself, or its JSON text where the text itself would be ambiguous."""
    if text is None or text in ("", "null") or text.startswith('"') or _SURROGATES.search(text):
        return json_text(text)
    return text


def json_text(value: str | int | bool | None) -> str:
    r"""Return a value as JSON, with ``\xff``, no escape of JSON, for a byte that is not UTF-8."""
    return _SURROGATES.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def _strings(values: pa.Array) -> list[str | None]:
    """Return strings, with a surrogate for each byte that is not UTF-8."""
    kind = pa.binary() if pat.is_string(values.type) else pa.large_binary()
    found: list[bytes | None] = values.view(kind).to_pylist()
    return [None if text is None else text.decode("utf-8", "surrogateescape") for text in found]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))


def _texts(values: pa.Array) -> list[str]:
    """Return values of a type of `_HAVE_TEXTS` as JSON."""
    kind = values.type
    if _is_text(kind):
        return [json_text(text) for text in _strings(values)]
    if pat.is_decimal(kind):
        return [_decimal(value) for value in values.to_pylist()]
    if pat.is_date32(kind):
        return [_date(days) for days in values.view(pa.int32()).to_pylist()]
    if pat.is_timestamp(kind):
        per_second, zone = _UNITS_PER_SECOND[kind.unit], "Z" if kind.tz is not None else ""
        all_ticks = values.view(pa.int64()).to_pylist()
        return [_timestamp(ticks, per_second, zone) for ticks in all_ticks]
    return [json_text(value) for value in values.to_pylist()]


def _decimal(value: Decimal | None) -> str:
    # Decimal.normalize() would round to the precision of the current context.
    if value is None:
        return "null"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _date(days: int | None) -> str:
    # datetime.date ends with the year 9999, Arrow does not.
    return "null" if days is None else f'"{np.datetime64(days, "D")}"'


def _timestamp(ticks: int | None, per_second: int, zone: str) -> str:
    if ticks is None:
        return "null"
    seconds, rest = divmod(ticks, per_second)
    digits = f"{rest + per_second}"[1:].rstrip("0")
    fraction = f".{digits}" if digits else ""
    return f'"{np.datetime64(seconds, "s")}{fraction}{zone}"'
