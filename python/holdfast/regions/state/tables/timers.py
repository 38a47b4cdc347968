"""Timers: a table whose keys begin with the time at which they are due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.regions.base.saved import StateError
from holdfast.regions.state.tables.columns import ColumnBuffers, Columns, Given, Rows, description
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_due
from holdfast.regions.state.tables.table import TableState
from holdfast.regions.state.tables.times import AttemptTimes, microseconds_of

Times: TypeAlias = "pa.Array | pa.ChunkedArray | Sequence[datetime] | datetime"
"""Timestamps, one for each key, or one for all."""

#: Column of the time, the first one of the table's key.
TIME: Final = "time"

_INSTANT: Final = pa.timestamp("us", "UTC")
_LAST_US: Final = 2**63 - 1

#: A timer has no value, but a table needs a column for one.
VALUE: Final = {"set": pa.bool_()}


def key_of(given: Given, where: str) -> pa.Schema:
    """Return the columns of the table's key: the time, and the columns of a timer's key."""
    key = pa.schema({"key": given} if isinstance(given, pa.DataType) else given)
    if TIME in key.names:
        raise StateError(f"{where}: a column of the key cannot be named {TIME!r}")
    return pa.schema([pa.field(TIME, _INSTANT), *key])


class TimerTable(TableState):
    """The table of timers, which notes the first time that was set.

    In processing time it knows when the first timer is due. Each checkpoint says so, and the driver
    runs the region then. A cancelled timer may cause one useless run.

    - `times`: returns the times of the attempt, for timers in processing time.
    - `set_us`: microseconds since 1970; None if no timer was set since the last reader took it.
    """

    def __init__(
        self, name: str, key: Columns, value: Columns, times: Callable[[], AttemptTimes] | None
    ) -> None:
        super().__init__(name, key, value)
        self._times = times
        self.set_us: int | None = None
        self._due_us: int | None = None

    def _upsert(self, keys: Sequence[ColumnBuffers], values: Sequence[ColumnBuffers]) -> None:
        super()._upsert(keys, values)
        if (first := pc.min(self._key.batch(keys)[TIME]).value) is not None:
            self.set_us = first if self.set_us is None else min(first, self.set_us)
            self._due_us = first if self._due_us is None else min(first, self._due_us)

    def _restore(self, data: memoryview) -> None:
        super()._restore(data)
        self._due_us = saved_due(data)

    def _freeze(self) -> FrozenTable:
        if self._times is None:
            return super()._freeze()
        now_us = microseconds_of(self._times().attempt)
        if self._due_us is not None and self._due_us <= now_us:
            self._due_us = self._first(now_us)
        return replace(super()._freeze(), due_us=self._due_us)

    @property
    def _description(self) -> str:
        more = {} if self._times is None else {"time": "processing"}
        return description(self._key, self._stored, **more)

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
    """Timers by key, of which there may be more than memory holds.

    A key may have several timers, at different times. Setting one twice sets it once, as in Flink
    and in Spark's ``transformWithState``.
    """

    def __init__(
        self, table: TimerTable, key: pa.Schema, time: Literal["event", "processing"]
    ) -> None:
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
        """Cancel timers, given as in `at`. Return for each whether it was set."""
        return self._table.delete(self._rows(keys, times))

    def __len__(self) -> int:
        """Return the number of timers."""
        return len(self._table)

    def _rows(self, keys: Rows, times: Times) -> pa.Table:
        fields = self._table._key
        if isinstance(keys, (pa.RecordBatch, pa.Table)):
            count = keys.num_rows
            there = [name for name in self._key.names if name in keys.schema.names]
            columns = {name: keys.column(name) for name in there}
        else:
            count = len(keys)
            name = self._key.names[0]
            columns = {name: fields.column(keys, name)}
        one = isinstance(times, datetime)
        at = fields.column([times] if one else times, TIME)
        return pa.table({TIME: pa.repeat(at[0], count) if one else at, **columns})

    def _now(self, times: AttemptTimes) -> datetime | None:
        """Return the time by which they are due; None if there is none yet."""
        return times.watermark if self._time == "event" else times.attempt


class DueTimers:
    """Takes the timers of an operator that are due: in order of time, processing time first.

    Each timer is taken when it is handed out. So this skips a timer that the operator cancels
    before, and includes one that it sets, in its place. Without `times`, exactly the timers that
    are set now are due.
    """

    def __init__(
        self, timers: Iterable[tuple[str, TimerState]], times: AttemptTimes | None
    ) -> None:
        self._by_name = {
            name: _Due(state, now)
            for name, state in timers
            if (now := None if times is None else state._now(times)) is not None or times is None
        }

    def take(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield timers with the name of their state; another call yields those set since."""
        while firsts := sorted(
            (due.in_event_time, first, number, name)
            for number, (name, due) in enumerate(self._by_name.items())
            if (first := due.first()) is not None
        ):
            in_event_time, _, number, name = firsts[0]
            # The first timer of another state at that time ends the batch.
            end = None
            if len(firsts) > 1 and firsts[1][0] == in_event_time:
                end = firsts[1][1] + (number < firsts[1][2])
            if (rows := self._by_name[name].take(end)).num_rows:
                yield name, rows


class _Due:
    """The timers of one state that are due."""

    def __init__(self, state: TimerState, now: datetime | None) -> None:
        self._state = state
        self._table = state._table
        # A number, because no datetime may follow this one.
        self._stop_us = None if now is None else microseconds_of(now) + 1
        self._rows = pa.RecordBatch.from_arrays([], names=[])
        self._times = np.array([], dtype=np.int64)
        self._begin()

    @property
    def in_event_time(self) -> bool:
        return self._state._time == "event"

    def first(self) -> int | None:
        """Return the time of the first one, in microseconds since 1970; None if there is none."""
        # The scan has older timers. Its rows before all new ones still hold.
        set_us, stop_us = self._table.set_us, self._stop_us
        is_new = set_us is not None and stop_us is not None and set_us < stop_us
        if is_new and (not len(self._times) or set_us <= self._times[-1]):
            self._scan.close()
            self._begin()
        while not len(self._times):
            if (rows := next(self._scan, None)) is None:
                return None
            self._rows = rows.select([TIME, *self._state._key.names])
            self._times = rows[TIME].cast(pa.int64()).to_numpy()
        return int(self._times[0])

    def take(self, end_us: int | None) -> pa.RecordBatch:
        """Take the fetched timers before a time that are still set."""
        count = len(self._times) if end_us is None else int(np.searchsorted(self._times, end_us))
        rows = self._rows.slice(0, count)
        self._rows, self._times = self._rows.slice(count), self._times[count:]
        return rows.filter(self._table.delete(rows))

    def _begin(self) -> None:
        """Look at all that are set."""
        self._table.set_us = None
        self._times = self._times[:0]
        stop = None if self._stop_us is None else (self._stop_us,)
        self._scan = self._table.scan(stop=stop)
