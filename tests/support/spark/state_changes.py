"""How states differ, computed from all their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

#: The rows of values of each key, as text: a NaN equals none.
Content = dict[str, list[str]]


def content(state: pa.Table, keys: int) -> Content:
    """The rows of each key; those of a list in their order."""
    found: Content = {}
    for row in state.to_pylist():
        columns = list(row.items())
        key = repr([value for _, value in columns[:keys]])
        found.setdefault(key, []).append(repr(dict(columns[keys:])))
    return found


def expected(before: Content, after: Content) -> dict[str, tuple[str, list[str], list[str]]]:
    """The change of each key, with its rows before and after."""
    found = {}
    for key in {*before, *after}:
        old, new = before.get(key, []), after.get(key, [])
        if old != new:
            found[key] = ("changed" if old and new else "added" if new else "removed", old, new)
    return found


def differences(
    batches: Iterable[pa.RecordBatch], keys: int
) -> dict[str, tuple[str, list[str], list[str]]]:
    """Rows of ``diff`` as :func:`expected` has them."""
    found = {}
    for batch in batches:
        for row in batch.to_pylist():
            values = list(row.values())
            change, before, after = values[keys:]
            key = repr(values[:keys])
            assert key not in found
            found[key] = (change, texts(before), texts(after))
    return found


def apply(state: Content, changes: pa.Table, keys: int) -> None:
    """Applies the rows of a watched batch."""
    for row in changes.to_pylist():
        values = list(row.values())
        change, after = values[keys:]
        if change == "removed":
            assert after is None
            state.pop(repr(values[:keys]))
        else:
            assert change == "upserted"
            state[repr(values[:keys])] = texts(after)


def texts(value: Any) -> list[str]:
    """The rows of a value: a struct, a list of them, or None."""
    if value is None:
        return []
    return [repr(one) for one in (value if isinstance(value, list) else [value])]
