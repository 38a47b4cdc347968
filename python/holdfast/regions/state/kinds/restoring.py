"""From the states of a checkpoint to the declared states, in their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast._core import decode_rows
from holdfast.regions.base.problem import message_of
from holdfast.regions.base.saved import SavedState, StateChangedError
from holdfast.regions.state.kinds.document import LargeState
from holdfast.regions.state.kinds.encoding import decode_value
from holdfast.regions.state.kinds.kind import ADVICE, Kind, changed, form_of
from holdfast.regions.state.kinds.list import LargeList
from holdfast.regions.state.kinds.map import LargeMap
from holdfast.regions.state.tables.columns import Columns
from holdfast.regions.state.tables.stored_table import saved_commit, saved_of

Evolve: TypeAlias = Callable[[Any], Any] | None
"""Converts content that a checkpoint has in another form; None: refuse it."""

_LARGE: Final[Mapping[str, type[LargeState]]] = {"list": LargeList, "map": LargeMap}


def in_form(saved: SavedState | None, state: Kind, evolve: Evolve) -> SavedState | None:
    """Return a state of the checkpoint in the declared form; None if there is none."""
    if saved is None or (found := form_of(saved)) == state.form:
        return saved
    where = changed(state.where, saved=found, declared=state.form)
    if evolve is None:
        raise StateChangedError(f"{where}. {ADVICE}")
    try:
        return state.encoded(evolve(_content(saved, state)))
    except Exception as e:
        raise StateChangedError(
            f"{where}, and evolve does not convert it: {type(e).__name__}: {message_of(e)}"
        ) from e


def _content(saved: SavedState, state: Kind) -> Any:
    """Return the content of a state in a checkpoint, for any use by `evolve`."""
    if saved.kind == "array":
        return np.frombuffer(saved.data, saved.dtype).reshape(saved.shape).copy()
    open_table = state.scope.open_table
    if saved.kind == "table" and open_table and (large := _LARGE.get(saved_of(saved.data))):
        saved = large(saved.name, state.where, saved_commit(saved.data)).read(open_table)
    return decode_value(saved)


def small_state(state: SavedState, read: Callable[[str], bytes]) -> SavedState:
    """Return a large state as a small one, and any other state unchanged.

    `read` returns the rows of a commit, see `holdfast._core.read_table`.
    """
    large = _LARGE.get(saved_of(state.data)) if state.kind == "table" else None
    if large is None:
        return state
    rows = table_rows(read(saved_commit(state.data)), *large.columns(state.name))
    return large.text(state.name, rows)


def table_rows(data: bytes, key: Columns, value: Columns) -> pa.Table:
    """Return the rows of a table, which `holdfast._core.read_table` read."""
    rows, columns = decode_rows(data, keys=key.layouts, values=value.layouts)
    keys = len(key.schema)
    arrays = [*key.arrays(columns[:keys], rows), *value.arrays(columns[keys:], rows)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*key.schema, *value.schema]))
