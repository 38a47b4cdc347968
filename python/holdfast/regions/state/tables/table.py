"""Keyed tables: the state store's native table, reached with whole Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from holdfast.regions.base.saved import StateError
from holdfast.regions.state.tables.columns import ColumnBuffers, Columns, Rows, description
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_commit

if TYPE_CHECKING:
    from holdfast._core import TableSession

OpenTable: TypeAlias = "Callable[[str, Sequence[str], Sequence[str], str | None], TableSession]"
"""Opens the table of a name for the current attempt, with these layouts and this commit."""


class TableState:
    """A table of rows by key, which may be much larger than memory.

    A checkpoint writes changes since the last one. Methods take and return whole batches. Rows are
    a `pyarrow.RecordBatch` or `Table` with the columns of the key, or of the value, by name, among
    others. A single column may be an array or a list.
    """

    def __init__(self, name: str, key: Columns, value: Columns) -> None:
        self._name = name
        self._key = key
        self._value = value
        # The columns of the value, with hidden ones that operators do not see.
        self._stored = value
        self._commit: str | None = None
        self._session: TableSession | None = None
        # Checks that rows with a key go to this instance, if the key determines it.
        self._require_here: Callable[[pa.RecordBatch], None] | None = None
        self._is_checked = False

    def get(self, keys: Rows) -> pa.RecordBatch:
        """Return the values of keys in the same order, one row each, all null for a missing key."""
        return self._get(self._key.buffers(keys))

    def contains(self, keys: Rows) -> pa.BooleanArray:
        """Return for each key whether it is there."""
        return self._contains(self._key.buffers(keys))

    def upsert(self, keys: Rows, values: Rows | None = None) -> None:
        """Set keys to values, row by row; the last row of a key counts.

        Without `values`, the rows of `keys` have the columns of the value, too.
        """
        given = keys if values is None else values
        self._upsert(self._key.buffers(keys), self._value.buffers(given))

    def delete(self, keys: Rows) -> pa.BooleanArray:
        """Remove keys. Return for each whether it was there."""
        return self._delete(self._key.buffers(keys))

    def scan(
        self, *, prefix: object = None, start: object = None, stop: object = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield all rows, key and value, in the order of the keys, without later changes.

        Parameters
        ----------
        prefix : tuple, dict or single value, optional
            Only keys that begin with these values of the first columns.
        start, stop : tuple, dict or single value, optional
            Only keys from `start` on, and before `stop`. The first columns of the key are enough.
        """
        if prefix is not None and (start is not None or stop is not None):
            raise StateError(f"{self._key.where}: scan() takes a prefix, or start and stop")
        table = self._open
        bounds = {
            name: self._key.row(values, whole=False)
            for name, values in (("prefix", prefix), ("start", start), ("stop", stop))
            if values is not None
        }
        return self._scanned(table, *table.scan(**bounds))

    def __len__(self) -> int:
        return len(self._open)

    def __getitem__(self, key: object) -> Any:
        """Return a key's value: a dict, or the only column's value. KeyError if it is missing."""
        row = self._key.row(key)
        if not self._contains(row)[0].as_py():
            raise KeyError(key)
        (value,) = self._get(row).to_pylist()
        return next(iter(value.values())) if self._value.single else value

    def __setitem__(self, key: object, value: object) -> None:
        self._upsert(self._key.row(key), self._value.row(value))

    def __delitem__(self, key: object) -> None:
        if not self._delete(self._key.row(key))[0].as_py():
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._contains(self._key.row(key))[0].as_py())

    def _restore(self, data: memoryview) -> None:
        """Take over what a checkpoint has of the table."""
        self._commit = saved_commit(data)

    def _begin(self, open_table: OpenTable) -> None:
        """Open the table for an attempt."""
        layouts = self._key.layouts, self._stored.layouts
        self._is_checked = False
        self._session = open_table(self._name, *layouts, self._commit)

    def _freeze(self) -> FrozenTable:
        """Commit the table for the checkpoint of the attempt."""
        table, self._session = self._open, None
        self._commit, segments, keys = table.commit()
        return FrozenTable(self._name, self._description, self._commit, segments, keys)

    def _close(self) -> None:
        """End the session, if one is open."""
        table, self._session = self._session, None
        if table is not None:
            table.close()

    @property
    def _description(self) -> str:
        return description(self._key, self._stored)

    @property
    def _open(self) -> TableSession:
        if self._session is None:
            raise StateError(
                f"{self._key.where}: a table can be used in process(), on_event() and "
                "on_end_of_data(), and in open() while the pipeline runs"
            )
        return self._session

    def _get(self, keys: Sequence[ColumnBuffers]) -> pa.RecordBatch:
        arrays = self._stored.arrays(self._open.get(keys), keys[0][2])
        return pa.RecordBatch.from_arrays(arrays, schema=self._stored.schema)

    def _contains(self, keys: Sequence[ColumnBuffers]) -> pa.BooleanArray:
        return _flags(self._open.contains(keys))

    def _upsert(self, keys: Sequence[ColumnBuffers], values: Sequence[ColumnBuffers]) -> None:
        if self._require_here is not None and not self._is_checked and keys[0][2]:
            # Most keys of a wrong type belong to other instances, so one key shows the mistake.
            self._require_here(self._key.batch(keys).slice(0, 1))
            self._is_checked = True
        self._open.upsert(keys, values)

    def _delete(self, keys: Sequence[ColumnBuffers]) -> pa.BooleanArray:
        return _flags(self._open.delete(keys))

    def _scanned(
        self, table: TableSession, rows: int, columns: Sequence[Any], scan: int | None
    ) -> Generator[pa.RecordBatch, None, None]:
        keys = len(self._key.schema)
        schema = pa.schema([*self._key.schema, *self._stored.schema])
        try:
            while rows:
                arrays = [
                    *self._key.arrays(columns[:keys], rows),
                    *self._stored.arrays(columns[keys:], rows),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                if scan is None:
                    return
                rows, columns, scan = table.scan_on(scan)
        finally:
            if scan is not None:
                table.close_scan(scan)


def _flags(found: bytes) -> pa.BooleanArray:
    return pa.array(memoryview(found)).cast(pa.bool_())
