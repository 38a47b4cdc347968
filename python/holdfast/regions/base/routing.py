"""The choice of the parallel instance to which a row goes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.regions.base.normal_form import take_rows
from holdfast.regions.base.splitting import json_text, name_of_text, route_codes

Key: TypeAlias = "str | int | bool | tuple[str | int | bool | None, ...] | None"
"""Values of the columns by which rows are routed."""

#: Types of keys, and of the parts of tuples.
KEY_PARTS: Final = frozenset({str, int, bool, type(None)})


def route_by(
    columns: Sequence[str], *, of: str = "route_by"
) -> Callable[[pa.RecordBatch, int], list[pa.RecordBatch | None]]:
    """Route rows with equal values in `columns` to one instance, in every run and process.

    Takes a batch and the number of instances; returns a batch, or None, for each instance. The rows
    of an instance keep their order, so the cut into batches does not matter.
    """

    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        owners = instances_of(batch, columns, instances, of=of)
        if len(owners) and (owners == owners[0]).all():
            return [batch if number == owners[0] else None for number in range(instances)]
        # Ascending, so that rows keep their order for any keys (R59).
        rows_of = [np.flatnonzero(owners == number) for number in range(instances)]
        return [take_rows(batch, rows) if len(rows) else None for rows in rows_of]

    return route


def instances_of(
    batch: pa.RecordBatch, columns: Sequence[str], instances: int, *, of: str = "route_by"
) -> npt.NDArray[Any]:
    """Return for each row the number of the instance to which it goes."""
    codes, names = route_codes(batch, route_by=columns, of=of)
    owners = np.array([instance_of(name, instances) for name in names], np.int64)
    found: npt.NDArray[Any] = owners[codes]
    return found


def key_name(key: Key) -> str:
    """Return the name by which rows of a key are routed; TypeError if it is no key."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if type(part) not in KEY_PARTS:
            raise TypeError(f"{type(part).__name__} is no part of a key")
    if isinstance(key, tuple):
        return f"[{','.join(map(json_text, parts))}]"
    return name_of_text(key) if isinstance(key, str) else json_text(key)


def instance_of(name: str, instances: int) -> int:
    """Return the instance to which the rows of a key go, in every run and every process."""
    # Python's own hash of a text differs from process to process.
    return zlib.crc32(name.encode()) % instances
