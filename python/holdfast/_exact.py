"""Values in a declared type, as far as no value changes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from datetime import time as day_time
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

#: Arrow takes values of these classes unchanged, or refuses them.
_EXACT: Final = frozenset({type(None), bool, int, str, bytes})


def exact_array(values: Any, kind: Any) -> pa.Array:
    """Return values, an array of Arrow or any sequence, as an array of a type.

    Integers stand for times as the numbers that Arrow stores. A time without a zone is in UTC.
    Raises pyarrow.ArrowException, TypeError, ValueError or OverflowError if a value would change.
    """
    if any(hasattr(values, name) for name in ("__array__", "__arrow_array__", "__arrow_c_array__")):
        values = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _exact_cast(values, kind)
    # Arrow takes large unsigned integers of NumPy for negative ones.
    given = [int(value) if isinstance(value, np.integer) else value for value in values]
    made: Any = pa.array(given, kind)
    exact = _EXACT | {float} if pat.is_float64(kind) else _EXACT
    if not set(map(type, given)) <= exact:
        for value, kept in zip(given, made, strict=True):
            if type(value) not in exact and not _is_same(value, kept):
                raise _changed(value, kept.as_py())
    return made


def _exact_cast(array: Any, kind: Any) -> pa.Array:
    if pat.is_dictionary(array.type):
        # Joined chunks may have too many values for their type of indices.
        array = array.cast(array.type.value_type)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == kind:
        return array
    made = array.cast(kind)
    if not pat.is_null(array.type):
        # Arrow rounds floats and decimals, and cuts times, without an error.
        try:
            back = made.cast(array.type)
        except pa.ArrowNotImplementedError:
            raise TypeError(f"{kind} does not hold values of {array.type}") from None
        if (place := _first_difference(array, back)) is not None:
            raise _changed(array[place], made[place])
    return made


def _first_difference(array: Any, other: Any) -> int | None:
    if array.equals(other):
        return None
    places: Any = np.arange(len(array))
    if pat.is_floating(array.type):
        ones, others = (one.to_numpy(zero_copy_only=False) for one in (array, other))
        places = places[(ones != others) & ~(np.isnan(ones) & np.isnan(others))]
    return next((int(at) for at in places if not array[at].equals(other[at])), None)


def _is_same(value: Any, kept: Any) -> bool:
    """Say whether a scalar of Arrow equals the value that it was made from."""
    if isinstance(value, (pa.Scalar, np.datetime64, np.timedelta64)):
        # Arrow takes them in their own type, or refuses them.
        return True
    found = kept.as_py()
    if isinstance(value, datetime) and isinstance(found, date):
        if not isinstance(found, datetime):
            return value == datetime.combine(found, day_time(), value.tzinfo)
        value, found = (one if one.tzinfo else one.replace(tzinfo=UTC) for one in (value, found))
    return bool(value == found or (value != value and found != found))


def _changed(value: Any, found: Any) -> ValueError:
    given = (
        repr(value.as_py()) if isinstance(value, (pa.StringScalar, pa.LargeStringScalar)) else value
    )
    return ValueError(
        f"{given} would become {found}: round or cast the values yourself, or declare another type"
    )
