"""Timers: a table whose keys begin with the time at which they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import pyarrow as pa

from holdfast.regions.state.columns import Given, Rows
from holdfast.regions.state.saved import StateError
from holdfast.regions.state.table import TableState

Times: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[datetime] | datetime"
"""Timestamps, one for each key, or one for all."""

#: Column of the time, the first one of the table's key.
TIME: Final = "time"

_INSTANT: Final = pa.timestamp("us", "UTC")

#: A timer has no value, and a table has a column for one.
VALUE: Final = {"set": pa.bool_()}


def key_of(given: Given, where: str) -> pa.Schema:
    """Return the columns of the table's key: the time, and those of a timer's key.

    Raises
    ------
    StateError
        If a column of the key has the name of the time.
    """
    key = pa.schema({"key": given} if isinstance(given, pa.DataType) else given)
    if TIME in key.names:
        raise StateError(f"{where}: a column of the key cannot be named {TIME!r}")
    return pa.schema([pa.field(TIME, _INSTANT), *key])


class TimerState:
    """Timers by key in event time, of which there may be far more than memory holds.

    A key may have several timers, at different times. To set one twice is to set it once, as in
    Flink and in Spark's ``transformWithState``.

    Parameters
    ----------
    table : TableState
        Has a key of `key_of`, and a value of `VALUE`.
    key : pyarrow.Schema
        The columns of a timer's key.
    """

    def __init__(self, table: TableState, key: pa.Schema) -> None:
        self._table = table
        self._key = key

    def at(self, keys: Rows, times: Times) -> None:
        """Set a timer for each key.

        Parameters
        ----------
        keys : pyarrow.RecordBatch, Table, Array or sequence
            Rows with the columns of the key by name, or the only column.
        times : pyarrow.Array, sequence of datetime, or datetime.datetime
            The time of each, or of all. A time that the watermark has passed is due with the next
            watermark.
        """
        rows = self._rows(keys, times)
        self._table.upsert(rows, pa.repeat(pa.scalar(True), rows.num_rows))

    def cancel(self, keys: Rows, times: Times) -> pa.BooleanArray:
        """Take timers back, given as in `at`. Return for each whether it was set."""
        return self._table.delete(self._rows(keys, times))

    def __len__(self) -> int:
        """Return the number of timers."""
        return len(self._table)

    def _rows(self, keys: Rows, times: Times) -> pa.Table:
        if isinstance(keys, (pa.RecordBatch, pa.Table)):
            count = keys.num_rows
            there = [name for name in self._key.names if name in keys.schema.names]
            columns = {name: keys.column(name) for name in there}
        else:
            count = len(keys)
            columns = {self._key.names[0]: keys}
        at = pa.repeat(pa.scalar(times), count) if isinstance(times, datetime) else times
        return pa.table({TIME: at, **columns})

    def _due(self, watermark: datetime | None) -> Iterator[pa.RecordBatch]:
        """Take the timers that are due, in order of time; None: all that are set now."""
        stop = None if watermark is None else (watermark + timedelta(microseconds=1),)
        for rows in self._table.scan(stop=stop):
            due = rows.select([TIME, *self._key.names])
            self._table.delete(due)
            yield due
