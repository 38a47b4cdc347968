"""Split the rows of a batch by the region that they belong to, and name the regions.

A region is named by a string that depends on the values of the region columns alone: not on the
batch, not on the width of a type, not on the time zone of a session. Equal names mean equal
values, so the name is what state is stored under.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

# The format's limit on each part of an owner's name.
MAX_REGION_BYTES: Final = 1024

_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ALLOWED: Final = "strings, integers, decimals, booleans, dates and timestamps"

Texts = Callable[[pa.Array], list[str]]


@dataclass(frozen=True, kw_only=True)
class _Key:
    """One region column of a batch.

    Attributes
    ----------
    values
        Array of a type in which equal values, and no others, have equal texts.
    texts
        Writes values of that type as JSON.
    """

    name: str
    values: pa.Array
    texts: Texts


def split_by_region(
    batch: pa.RecordBatch, *, region_by: str | Sequence[str]
) -> list[tuple[str, pa.RecordBatch]]:
    """Split a batch into one batch per region.

    The name of a region is the value itself where there is one column and it holds strings, else
    JSON text: of the value for one column, of the list of values for several. In that text
    numbers have no trailing zeros, dates and timestamps are ISO 8601 strings (with ``Z`` where
    the column has a time zone, whichever that is), and a missing value is ``null``. Two strings
    would be ambiguous as names and are written as JSON text too: ``null``, and every string that
    begins with a quotation mark. So is the empty string, which would be no name at all.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Rows of any number of regions.
    region_by : str or sequence of str
        Name(s) of the column(s) whose values identify the region of a row. Their types:
        strings, integers, decimals, booleans, dates, timestamps, and dictionaries of those.

    Returns
    -------
    list of tuple of (str, pyarrow.RecordBatch)
        Name and rows of each region, regions in the order in which they first appear in the
        batch, rows in the order of the batch. No batch is empty; a batch without rows gives an
        empty list. The batches may share the buffers of one sorted copy: a caller that keeps a
        small one for long should copy it.

    Raises
    ------
    ValueError
        If no column is named, one is named twice, is not there, or is there twice; or if the
        name of a region is longer than 1 KiB in UTF-8.
    TypeError
        If a column has a type that cannot identify a region. Floating-point numbers cannot:
        they have no stable equality.

    Examples
    --------
    >>> rows = pa.record_batch({"origin": ["JFK", "LGA", "JFK"], "month": [1, 1, 1]})
    >>> [(name, part.num_rows) for name, part in split_by_region(rows, region_by="origin")]
    [('JFK', 2), ('LGA', 1)]
    >>> [name for name, _ in split_by_region(rows, region_by=["origin", "month"])]
    ['["JFK",1]', '["LGA",1]']
    """
    keys = _keys(batch, region_by)
    if batch.num_rows == 0:
        return []
    codes, regions = _codes(keys)
    if regions == 1:
        return [(_region_names(keys, np.zeros(1, np.int64))[0], batch)]
    order = _stable_order(codes, regions)
    rows = np.bincount(codes, minlength=regions)
    starts = np.cumsum(rows) - rows
    found = _region_names(keys, order[starts])
    # A region's rows usually arrive together: then they are in this order and nothing is copied.
    ordered = batch if _is_sorted(codes) else batch.take(pa.array(order))
    return [
        (name, ordered.slice(start, count))
        for name, start, count in zip(found, starts.tolist(), rows.tolist(), strict=True)
    ]


def region_codes(
    batch: pa.RecordBatch, *, region_by: str | Sequence[str]
) -> tuple[npt.NDArray[Any], list[str]]:
    """Say of every row to which region it belongs.

    Parameters
    ----------
    batch, region_by
        As for `split_by_region`.

    Returns
    -------
    tuple of (numpy.ndarray of shape (rows,), list of str)
        Number of each row's region, and the names of the regions by these numbers, which rise in
        the order in which the regions first appear. Both are empty for a batch without rows.

    Raises
    ------
    ValueError, TypeError
        As for `split_by_region`.
    """
    keys = _keys(batch, region_by)
    if batch.num_rows == 0:
        return np.empty(0, np.int64), []
    codes, regions = _codes(keys)
    first = np.empty(regions, np.int64)
    # Written last to first, so that what stays of a region is its first row.
    first[codes[::-1]] = np.arange(batch.num_rows - 1, -1, -1)
    return codes, _region_names(keys, first)


def _keys(batch: pa.RecordBatch, region_by: str | Sequence[str]) -> list[_Key]:
    names = [region_by] if isinstance(region_by, str) else list(region_by)
    return [_key(batch, name) for name in _checked(names)]


def _checked(names: list[str]) -> list[str]:
    if not names:
        raise ValueError("region_by names no column: expected at least one")
    for position, name in enumerate(names):
        if name in names[:position]:
            raise ValueError(f"region_by names the column {name!r} twice")
    return names


def _key(batch: pa.RecordBatch, name: str) -> _Key:
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        problem = "is not in the batch" if not found else f"is there {len(found)} times"
        there = ", ".join(map(repr, batch.schema.names)) or "none"
        raise ValueError(
            f"the region column {name!r} {problem}: expected it once among the columns {there}"
        )
    values = batch.column(found[0])
    if pat.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pat.is_date64(values.type):
        values = values.cast(pa.date32())
    if pat.is_string_view(values.type):
        values = values.cast(pa.string())  # Arrow cannot take rows of a view
    texts = _texts(values.type)
    if texts is None:
        why = (
            ": floating-point numbers have no stable equality; cast it to an integer, a decimal or "
            "a string"
            if pat.is_floating(values.type)
            else f": expected {_ALLOWED}"
        )
        raise TypeError(
            f"the region column {name!r} has type {values.type}, which cannot name a region{why}"
        )
    return _Key(name=name, values=values, texts=texts)


def _codes(keys: Sequence[_Key]) -> tuple[npt.NDArray[Any], int]:
    """Give every region a number from 0, in the order in which the regions first appear.

    Returns
    -------
    tuple of (numpy.ndarray of shape (rows,), int)
        Number of each row's region, and how many regions there are.
    """
    codes, count = _encode(keys[0].values)
    for key in keys[1:]:
        more, distinct = _encode(key.values)
        # Both factors are below 2^31, the most rows a batch of this size can have: no overflow.
        codes, count = _encode(pa.array(codes.astype(np.int64) * distinct + more))
    return codes, count


def _encode(column: pa.Array) -> tuple[npt.NDArray[Any], int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(), len(encoded.dictionary)


def _stable_order(codes: npt.NDArray[Any], regions: int) -> npt.NDArray[np.int64]:
    # NumPy sorts integers of up to 16 bits by radix, in linear time.
    narrow = codes.astype(np.min_scalar_type(regions - 1), copy=False)
    return np.argsort(narrow, kind="stable")


def _is_sorted(codes: npt.NDArray[Any]) -> bool:
    return bool(np.all(codes[1:] >= codes[:-1]))


def _region_names(keys: Sequence[_Key], rows: npt.NDArray[np.int64]) -> list[str]:
    """Return the names of the regions that the given rows belong to."""
    picked = [key.values.take(pa.array(rows)) for key in keys]
    if len(keys) > 1:
        texts = [key.texts(values) for key, values in zip(keys, picked, strict=True)]
        found = [f"[{','.join(parts)}]" for parts in zip(*texts, strict=True)]
    elif _is_text(picked[0].type):
        found = [name_of_text(text) for text in picked[0].to_pylist()]
    else:
        found = keys[0].texts(picked[0])
    for region in found:
        size = len(region.encode())
        if size > MAX_REGION_BYTES:
            columns = ", ".join(repr(key.name) for key in keys)
            raise ValueError(
                f"region_by ({columns}) names a region with {size} bytes of UTF-8, which begins "
                f"with {region[:40]!r}: at most {MAX_REGION_BYTES} bytes are allowed"
            )
    return found


def name_of_text(text: str | None) -> str:
    """Return the text itself unless it could be taken for the JSON text of another value."""
    if text is None or text in ("", "null") or text.startswith('"'):
        return _json(text)
    return text


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))


def _texts(kind: pa.DataType) -> Texts | None:
    """Return the function that writes values of a type as JSON; None if there is none."""
    if _is_text(kind) or pat.is_integer(kind) or pat.is_boolean(kind) or pat.is_null(kind):
        return lambda values: [_json(value) for value in values.to_pylist()]
    if pat.is_decimal(kind):
        return lambda values: [_decimal(value) for value in values.to_pylist()]
    if pat.is_date32(kind):
        return lambda values: [_date(days) for days in values.view(pa.int32()).to_pylist()]
    if pat.is_timestamp(kind):
        zone = "Z" if kind.tz is not None else ""
        return lambda values: [
            _timestamp(ticks, _UNITS_PER_SECOND[kind.unit], zone)
            for ticks in values.view(pa.int64()).to_pylist()
        ]
    return None


def _json(value: str | int | bool | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decimal(value: Decimal | None) -> str:
    # Not Decimal.normalize(), which rounds to the precision of the current context.
    if value is None:
        return "null"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _date(days: int | None) -> str:
    # Not datetime.date, which ends with the year 9999 where Arrow goes on.
    return "null" if days is None else f'"{np.datetime64(days, "D")}"'


def _timestamp(ticks: int | None, per_second: int, zone: str) -> str:
    if ticks is None:
        return "null"
    seconds, rest = divmod(ticks, per_second)
    digits = f"{rest + per_second}"[1:].rstrip("0")
    fraction = f".{digits}" if digits else ""
    return f'"{np.datetime64(seconds, "s")}{fraction}{zone}"'
