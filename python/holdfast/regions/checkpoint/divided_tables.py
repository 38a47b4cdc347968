"""Tables for another number of instances: each row follows the rows of its key (R73).

The key of a table has the columns of `route_by`, so the instance of each row is known without the
operator. Rows are read and written in batches, so tables may have any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.regions.base.errors import LayoutChangedError
from holdfast.regions.base.routing import instances_of
from holdfast.regions.base.saved import SavedState
from holdfast.regions.checkpoint.copy import SegmentCopies
from holdfast.regions.checkpoint.layout import StageLayout
from holdfast.regions.state.tables.columns import Columns
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_key


def divide_table(
    copies: SegmentCopies,
    region: str,
    origin: int,
    held: Mapping[str, SavedState],
    before: StageLayout,
    now: StageLayout,
    *,
    where: str,
) -> list[FrozenTable]:
    """Write a table of each new instance; `held` are tables of the old ones, by their names.

    Raises a LayoutChangedError if the key does not determine the instance of a row.
    """
    first = next(iter(held.values()))
    where = f"{where}: table {first.name!r}"
    key = Columns.saved(saved_key(first.data), where=where)
    for column in (*before.route_by, *now.route_by):
        if column not in key.schema.names:
            raise LayoutChangedError(
                f"{where} has no column {column!r} in its key, and rows are routed by that column: "
                "it is not known to which instance its rows belong; keep parallelism and route_by, "
                "or start with a new checkpoint and a table that has the columns of route_by in "
                "its key"
            )
    numbers = [before.instances.index(name) for name in held]

    def chosen(target: int, table: int, rows: int, columns: Any) -> bytes:
        batch = pa.RecordBatch.from_arrays(key.arrays(columns, rows), schema=key.schema)
        if target == 0 and before.parallelism > 1:
            _require_at(numbers[table], batch, before, where=where)
        if now.parallelism == 1:
            return b"\1" * rows
        return bytes((_places(batch, now, where=where) == target).astype(np.uint8))

    choose = {name: partial(chosen, target) for target, name in enumerate(now.instances)}
    return copies.divided_tables(region, origin, held, first.name, keys=key.layouts, choose=choose)


def _places(batch: pa.RecordBatch, stage: StageLayout, *, where: str) -> npt.NDArray[Any]:
    try:
        return instances_of(batch, stage.route_by, stage.parallelism)
    except (TypeError, ValueError) as e:
        raise LayoutChangedError(f"{where}: its rows cannot be routed: {e}") from e


def _require_at(instance: int, batch: pa.RecordBatch, before: StageLayout, *, where: str) -> None:
    """Check that rows are at the instance to which the rows of their keys went."""
    places = _places(batch, before, where=where)
    strays = np.flatnonzero(places != instance)
    if strays.size:
        (row,) = batch.slice(int(strays[0]), 1).to_pylist()
        raise LayoutChangedError(
            f"{where} of instance {instance} has the key {row}, whose rows went to instance "
            f"{places[strays[0]]}: such keys cannot follow their rows; keep parallelism and "
            "route_by, or put keys only where their rows come"
        )
