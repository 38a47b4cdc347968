"""Tables, with and without a time to live, and timers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Literal

import pyarrow as pa

from holdfast.regions.base.routing import instances_of
from holdfast.regions.base.saved import Lease, SavedState, StateError
from holdfast.regions.state.kinds.kind import Commit, Kind, Scope
from holdfast.regions.state.tables.columns import Columns, Given
from holdfast.regions.state.tables.expiring import ExpiringTable, TimeToLive
from holdfast.regions.state.tables.table import TableState
from holdfast.regions.state.tables.timers import VALUE, TimerState, TimerTable, key_of


class TableKind(Kind):
    """A table of rows by key, see `StateRegistry.table`."""

    kind = "table"
    noun = "table"
    advice = "through {place}.upsert(...)"
    handle: TableState | TimerState

    def __init__(self, scope: Scope, table: TableState, *, follows_watermark: bool = False) -> None:
        super().__init__(scope, table._name)
        self.form = f"a table of {table._description}"
        self.follows_watermark = follows_watermark
        self.handle = self.table = table

    @classmethod
    def declared(
        cls,
        scope: Scope,
        name: str,
        key: Given,
        value: Given,
        ttl: timedelta | str | None,
        ttl_by: str | None,
    ) -> Iterator[TableKind]:
        """Yield the table that a program declares, and its index if it has one."""
        at = scope.at(name)
        keys = Columns.of(key, name="key", where=at)
        values = Columns.of(value, name="value", where=at)
        if twice := set(keys.schema.names) & set(values.schema.names):
            raise StateError(f"{at}: column {min(twice)!r} is both in the key and in the value")
        if ttl is None:
            if ttl_by is not None:
                raise StateError(f"{at}: ttl_by={ttl_by!r} needs a ttl")
            yield cls(scope, TableState(name, keys, values))
            return
        life = TimeToLive.of(ttl, ttl_by, keys, values)
        table = ExpiringTable(name, keys, values, life, scope.now)
        yield cls(scope, table, follows_watermark=ttl_by is not None)
        yield cls(scope, table.index)

    def restore(self, saved: SavedState | None) -> None:
        """See `Kind`."""
        scope, table = self.scope, self.table
        if saved is not None:
            table._restore(saved.data)
        keyed = set(scope.route_by) <= set(table._key.schema.names)
        if scope.parallelism > 1 and scope.route_by and keyed:
            table._require_here = partial(_require_here, scope, self.where)
        self.begin()

    def begin(self) -> None:
        """See `Kind`."""
        if self.scope.open_table is not None:
            self.table._begin(self.scope.open_table)

    def take(self, lease: Lease) -> Commit:
        """See `Kind`."""
        return self.table._freeze

    def close(self) -> None:
        """See `Kind`."""
        self.table._close()


class TimersKind(TableKind):
    """Timers by key, see `StateRegistry.timers`."""

    noun = "timer"
    advice = "through {place}.at(...)"
    handle: TimerState

    def __init__(
        self, scope: Scope, name: str, *, key: Given, time: Literal["event", "processing"]
    ) -> None:
        at = scope.at(name)
        if time not in ("event", "processing"):
            raise StateError(
                f"{at}: time={time!r} is not allowed: expected 'event' or 'processing'"
            )
        columns = key_of(key, where=at)
        keys = Columns.of(columns, name="key", where=at)
        values = Columns.of(VALUE, name="value", where=at)
        table = TimerTable(name, keys, values, None if time == "event" else scope.now)
        super().__init__(scope, table, follows_watermark=time == "event")
        self.handle = TimerState(table, columns.remove(0), time)


def _require_here(scope: Scope, where: str, rows: pa.RecordBatch) -> None:
    (place,) = instances_of(rows, scope.route_by, scope.parallelism)
    if place != scope.instance:
        raise StateError(
            f"{where}: rows with the key {rows.to_pylist()[0]} do not come to instance "
            f"{scope.instance} of {scope.parallelism}: the key has the columns of route_by, so "
            "that its rows can follow the rows of the stream; give these columns the type that "
            "they have there, or another name"
        )
