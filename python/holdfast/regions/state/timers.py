"""Timers: a table whose keys begin with the time at which they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.regions.state.columns import ColumnBuffers, Columns, Given, Rows, description
from holdfast.regions.state.saved import StateError
from holdfast.regions.state.stored_table import FrozenTable, saved_due
from holdfast.regions.state.table import TableState
from holdfast.regions.state.times import AttemptTimes, microseconds_of

Times: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[datetime] | datetime"
"""Timestamps, one for each key, or one for all."""

#: Column of the time, the first one of the table's key.
TIME: Final = "time"

_INSTANT: Final = pa.timestamp("us", "UTC")
_LAST_US: Final = 2**63 - 1

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


class WakingTable(TableState):
    """The table of timers in processing time, which knows when the first one is due.

    Each checkpoint says so, and the driver runs the region then. A timer that was taken back may
    let a region run once for nothing.

    Parameters
    ----------
    times : callable
        Returns the times of the attempt.
    """

    def __init__(
        self, name: str, key: Columns, value: Columns, times: Callable[[], AttemptTimes]
    ) -> None:
        super().__init__(name, key, value)
        self._times = times
        self._due_us: int | None = None

    def _restore(self, data: memoryview) -> None:
        super()._restore(data)
        self._due_us = saved_due(data)

    def _upsert(self, keys: Sequence[ColumnBuffers], values: Sequence[ColumnBuffers]) -> None:
        super()._upsert(keys, values)
        if (first := pc.min(self._key.batch(keys)[TIME]).value) is not None:
            self._due_us = first if self._due_us is None else min(first, self._due_us)

    def _freeze(self) -> FrozenTable:
        now_us = microseconds_of(self._times().attempt)
        if self._due_us is not None and self._due_us <= now_us:
            self._due_us = self._first(now_us)
        return replace(super()._freeze(), due_us=self._due_us)

    @property
    def _description(self) -> str:
        return description(self._key, self._stored, time="processing")

    def _first(self, now_us: int) -> int | None:
        """Look for the first timer, in longer and longer times: a scan begins with all its keys."""
        ahead_us = 1
        while len(self):
            for rows in self.scan(stop=(min(now_us + ahead_us, _LAST_US),)):
                return int(rows[TIME][0].value)
            if now_us + ahead_us >= _LAST_US:
                return _LAST_US
            ahead_us *= 8
        return None


class TimerState:
    """Timers by key, of which there may be far more than memory holds.

    A key may have several timers, at different times. To set one twice is to set it once, as in
    Flink and in Spark's ``transformWithState``.

    Parameters
    ----------
    table : TableState
        Has a key of `key_of`, and a value of `VALUE`.
    key : pyarrow.Schema
        The columns of a timer's key.
    time : {"event", "processing"}
        Time in which they are due.
    """

    def __init__(self, table: TableState, key: pa.Schema, time: str) -> None:
        self._table = table
        self._key = key
        self._time = time

    def at(self, keys: Rows, times: Times) -> None:
        """Set a timer for each key.

        Parameters
        ----------
        keys : pyarrow.RecordBatch, Table, Array or sequence
            Rows with the columns of the key by name, or the only column.
        times : pyarrow.Array, sequence of datetime, or datetime.datetime
            The time of each, or of all. A time that has passed is due in this batch.
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

    def _now(self, times: AttemptTimes) -> datetime | None:
        """Return the time by which they are due; None if there is none yet."""
        return times.watermark if self._time == "event" else times.attempt

    def _due(self, now: datetime | None) -> Iterator[pa.RecordBatch]:
        """Take the timers that are due, in order of time; None: all that are set now."""
        # A number, because there may be no datetime behind this one.
        stop = None if now is None else (microseconds_of(now) + 1,)
        for rows in self._table.scan(stop=stop):
            due = rows.select([TIME, *self._key.names])
            self._table.delete(due)
            yield due
