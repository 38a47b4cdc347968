"""Tables whose rows expire: they have a time to live."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast._checks import duration
from holdfast.regions.base.saved import StateError
from holdfast.regions.state.tables.columns import ColumnBuffers, Columns, description
from holdfast.regions.state.tables.stored_table import FrozenTable
from holdfast.regions.state.tables.table import OpenTable, TableState
from holdfast.regions.state.tables.times import AttemptTimes, microseconds_in, microseconds_of

if TYPE_CHECKING:
    from holdfast._core import TableSession

#: Column of the value for the time at which a row was set; operators do not see it.
SET: Final = "$set"

#: First column of the index: the time at which a key may have expired.
EXPIRES: Final = "$expires"

#: A key of the index has no value, but a table needs a column for one.
_INDEXED: Final = "$indexed"

#: A commit looks at so many keys that may have expired, and at two for each row that was set.
LOOKED_AT: Final = 10_000

_US: Final = timedelta(microseconds=1)
_INT64: Final = np.iinfo(np.int64)
_INSTANT: Final = pa.timestamp("us", "UTC")
_HIDDEN: Final = pa.field(SET, _INSTANT)
_DUE: Final = pa.field(EXPIRES, _INSTANT)


@dataclass(frozen=True)
class TimeToLive:
    """How many microseconds rows live, from the time in a column of the key or of the value."""

    us: int
    column: str
    in_key: bool

    @classmethod
    def of(cls, ttl: timedelta | str, column: str | None, key: Columns, value: Columns) -> Self:
        """Check a program's declaration of rows that expire; StateError if it is not allowed."""
        us = life_us(ttl, key.where)
        fields = {field.name: field.type for field in (*key.schema, *value.schema)}
        if taken := fields.keys() & {SET, EXPIRES, _INDEXED}:
            raise StateError(
                f"{key.where}: a table with ttl has a column {min(taken)!r} of its own: rename "
                "the one that you declare"
            )
        if column is None:
            return cls(us, SET, in_key=False)
        kind = fields.get(column)
        if kind is None or not pa.types.is_timestamp(kind):
            found = "the table has no such column" if kind is None else f"it is {kind}"
            raise StateError(
                f"{key.where}: ttl_by={column!r} is not allowed: expected the name of a timestamp "
                f"column of the key or value, and {found}"
            )
        return cls(us, column, in_key=column in key.schema.names)


def life_us(ttl: timedelta | str, where: str) -> int:
    """Return a time to live in microseconds, within 64 bits; StateError if it is none."""
    try:
        us = duration("ttl", ttl) // _US
    except ValueError as e:
        raise StateError(f"{where}: {e}") from None
    if us == 0:
        raise StateError(f"{where}: ttl={ttl!r} is not allowed: expected more than nothing")
    return min(us, int(_INT64.max))


class ExpiringTable(TableState):
    """A table that has no row once the row's life is over.

    Its `index`, which checkpoints have as another state, has a time for each key, at which the key
    may have expired. A commit looks at the keys that are due, and removes expired ones. So a row
    that is set often costs one entry of the index in its whole life.
    """

    def __init__(
        self,
        name: str,
        key: Columns,
        value: Columns,
        ttl: TimeToLive,
        times: Callable[[], AttemptTimes],
    ) -> None:
        super().__init__(name, key, value)
        if ttl.column == SET:
            self._stored = Columns(key.where, value.schema.append(_HIDDEN), value.single)
        self._ttl = ttl
        instants = Columns.of(pa.schema([_DUE, *key.schema]), name="key", where=key.where)
        nothing = Columns.of({_INDEXED: pa.bool_()}, name="value", where=key.where)
        self.index = TableState(f"{name}.expiry", instants, nothing)
        self._times = times
        self._rows_set = 0

    def _begin(self, open_table: OpenTable) -> None:
        super()._begin(open_table)
        self._rows_set = 0

    def _freeze(self) -> FrozenTable:
        self._remove_expired()
        return super()._freeze()

    @property
    def _description(self) -> str:
        return description(self._key, self._stored, ttl=self._ttl.column)

    def _get(self, keys: Sequence[ColumnBuffers]) -> pa.RecordBatch:
        rows = super()._get(keys)
        expired = self._expired(self._since(keys, rows))
        rows = rows.select(self._value.schema.names)
        if not pc.any(expired).as_py():
            return rows
        places = pa.array(np.arange(rows.num_rows))
        return rows.take(pc.if_else(expired, pa.scalar(None, pa.int64()), places))

    def _contains(self, keys: Sequence[ColumnBuffers]) -> pa.BooleanArray:
        expired = self._expired(self._since(keys, super()._get(keys)))
        return pc.and_not(super()._contains(keys), expired)

    def _delete(self, keys: Sequence[ColumnBuffers]) -> pa.BooleanArray:
        expired = self._expired(self._since(keys, super()._get(keys)))
        return pc.and_not(super()._delete(keys), expired)

    def _upsert(self, keys: Sequence[ColumnBuffers], values: Sequence[ColumnBuffers]) -> None:
        count = keys[0][2]
        self._rows_set += count
        if self._ttl.column == SET:
            hidden = Columns(self._key.where, pa.schema([_HIDDEN]), single=True)
            now = pa.repeat(pa.scalar(self._times().attempt, _INSTANT), count)
            values = [*values, *hidden.buffers(now)]
        # A key without a time is in no index, and neither is a missing key.
        if self._ttl.in_key:
            is_indexed = super()._contains(keys)
        else:
            is_indexed = super()._get(keys)[self._ttl.column].is_valid()
        super()._upsert(keys, values)
        rows = self._key.batch(keys)
        since = self._since(keys, self._stored.batch(values))
        self._put_in_index(rows, since, pc.and_not(since.is_valid(), is_indexed))

    def _scanned(
        self, table: TableSession, rows: int, columns: Sequence[Any], scan: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        names = [*self._key.schema.names, *self._value.schema.names]
        for batch in super()._scanned(table, rows, columns, scan):
            alive = pc.invert(self._expired(batch[self._ttl.column]))
            if (found := batch.filter(alive).select(names)).num_rows:
                yield found

    def _since(self, keys: Sequence[ColumnBuffers], rows: pa.RecordBatch) -> pa.Array:
        """Return the times that the lives of rows count from."""
        batch = self._key.batch(keys) if self._ttl.in_key else rows
        return batch[self._ttl.column]

    def _expired(self, since: pa.Array) -> pa.BooleanArray:
        """Return for each time whether a row has expired; null times never do."""
        if (now_us := self._now_us) is None:
            return pa.repeat(pa.scalar(False), len(since))
        before = max(now_us - self._ttl.us, int(_INT64.min))
        return pc.fill_null(pc.less_equal(microseconds_in(since), before), False)

    @property
    def _now_us(self) -> int | None:
        times = self._times()
        now = times.attempt if self._ttl.column == SET else times.watermark
        return None if now is None else microseconds_of(now)

    def _put_in_index(self, keys: pa.RecordBatch, since: pa.Array, which: pa.Array) -> None:
        us = microseconds_in(since.filter(which)).to_numpy(zero_copy_only=False)
        if len(us):
            expires = np.minimum(us, _INT64.max - self._ttl.us) + self._ttl.us
            rows = pa.table(
                {
                    EXPIRES: pa.array(expires).cast(_INSTANT),
                    **dict(zip(keys.schema.names, keys.filter(which).columns, strict=True)),
                    _INDEXED: pa.repeat(pa.scalar(True), len(us)),
                }
            )
            self.index.upsert(rows)

    def _remove_expired(self) -> None:
        """Look at some of the keys that are due, and remove expired ones."""
        if (now_us := self._now_us) is None:
            return
        left = LOOKED_AT + 2 * self._rows_set
        for batch in self.index.scan(stop=(now_us + 1,)):
            due = batch.slice(0, left)
            keys = self._key.buffers(due)
            since = self._since(keys, super()._get(keys))
            expired = self._expired(since)
            super()._delete(self._key.buffers(due.filter(expired)))
            self.index.delete(due)
            rows = due.select(self._key.schema.names)
            self._put_in_index(rows, since, pc.and_not(since.is_valid(), expired))
            left -= due.num_rows
            if not left:
                return
