"""States that a checkpoint has as one text: values, and maps and lists that are not large.

A map or list becomes large when its text has more than `document_bytes`. Then its entries become
rows of a table, for good, and a checkpoint writes changed entries. The operator keeps the same
objects.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from holdfast.regions.base.saved import Lease, SavedState, StateError, StateKind
from holdfast.regions.state.kinds.encoding import JSON, decode_value
from holdfast.regions.state.kinds.kind import Commit, Kind
from holdfast.regions.state.tables.columns import Columns, description
from holdfast.regions.state.tables.stored_table import FrozenTable, Of, saved_commit
from holdfast.regions.state.tables.table import OpenTable, TableState

#: Rows that one call writes.
_ROWS: Final = 100_000

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

_FIXED: Final = frozenset({type(None), bool, int, float, str, bytes})


class LargeState(TableState):
    """The table of a large state. The subclasses find what changed.

    A string or a number does not change in place, so it is another object if it changed. A list or
    dict may change in place once the operator has it, so its text is compared with the written one.

    `kind` and `dtype` are of its text. The last column has the texts of the entries.
    """

    of: ClassVar[Of]
    kind: ClassVar[StateKind]
    dtype = JSON
    key: ClassVar[pa.Schema]
    value: ClassVar[pa.Schema]

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        super().__init__(name, *self.columns(where))
        self._commit = commit
        self._removed: list[Any] = []
        self._rows: list[pa.Table] = []

    @classmethod
    def columns(cls, where: str) -> tuple[Columns, Columns]:
        """Return the columns of the key and of the value."""
        key, value = (Columns.of(one, name="key", where=where) for one in (cls.key, cls.value))
        return key, value

    @classmethod
    def text(cls, name: str, rows: pa.Table) -> SavedState:
        """Return all rows as a checkpoint has a small state."""
        texts = rows.column(rows.num_columns - 1).to_pylist()
        data = f"[{','.join(texts)}]".encode()
        return SavedState(name, cls.kind, cls.dtype, (len(data),), memoryview(data))

    def read(self, open_table: OpenTable) -> SavedState:
        """Return the state as a small one."""
        self._begin(open_table)
        rows = pa.Table.from_batches(self.scan(), schema=pa.schema([*self.key, *self.value]))
        self._close()
        self._learn(rows)
        return self.text(self._name, rows)

    def follow(self, handle: Any, *, written: bool) -> None:
        """Follow a handle from now on; `written` says that the table has its content."""
        raise NotImplementedError

    def prepare(self, content: Any) -> None:
        """Find what changed since the last checkpoint; StateError if a value cannot be kept."""
        raise NotImplementedError

    def write(self, open_table: OpenTable) -> FrozenTable:
        """Commit what `prepare` found."""
        self._begin(open_table)
        if self._removed:
            self.delete(self._removed)
        for rows in self._rows:
            self.upsert(self._numbered(rows))
        self._removed, self._rows = [], []
        return self._freeze()

    @property
    def _description(self) -> str:
        return description(self._key, self._stored, of=self.of)

    def _learn(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def _numbered(self, rows: pa.Table) -> pa.Table:
        return rows

    def _put(self, *columns: Sequence[Any]) -> None:
        """Note rows to write, given as the columns of the schema, in its order."""
        for start in range(0, len(columns[0]), _ROWS):
            slices = [column[start : start + _ROWS] for column in columns]
            self._rows.append(pa.table(slices, schema=pa.schema([*self.key, *self.value])))


class DocumentKind(Kind):
    """A state that checkpoints have as a text, and as a table once it is large."""

    large_state: ClassVar[type[LargeState] | None] = None
    _large: LargeState | None = None

    def restore(self, saved: SavedState | None) -> None:
        """See `Kind`."""
        open_table = self.scope.open_table
        if saved is not None and saved.kind == "table" and self.large_state and open_table:
            self._large = self.large_state(self.name, self.where, saved_commit(saved.data))
            saved = self._large.read(open_table)
        self._make(saved, None if saved is None else decode_value(saved))
        if self._large is not None:
            self._large.follow(self.handle, written=True)

    def take(self, lease: Lease) -> Commit:
        """See `Kind`."""
        open_table = self.scope.open_table
        if self._large is None or open_table is None:
            small = self._text(self._content)
            most = self.scope.options.document_bytes
            if open_table is None or self.large_state is None or small.data.nbytes <= most:
                return lambda: small
            self._large = self.large_state(self.name, self.where)
            self._large.follow(self.handle, written=False)
        try:
            self._large.prepare(self._content)
        except StateError as e:
            raise StateError(f"{self.where}: {e}") from None
        return partial(self._large.write, open_table)

    def encoded(self, content: Any) -> SavedState:
        """See `Kind`."""
        return self._text(content)

    def _text(self, content: Any) -> SavedState:
        try:
            data, dtype = self._encode(content)
        except StateError as e:
            raise StateError(f"{self.where}: {e}") from None
        return SavedState(self.name, self.kind, dtype, (len(data),), memoryview(data))

    def _make(self, saved: SavedState | None, content: Any) -> None:
        """Make the handle; `content` is from `saved`."""
        raise NotImplementedError

    @property
    def _content(self) -> Any:
        raise NotImplementedError

    def _encode(self, content: Any) -> tuple[bytes, str]:
        """Return content as bytes, and their data type."""
        raise NotImplementedError


def is_fixed(kind: type) -> bool:
    """Say whether values of this type do not change in place."""
    return kind in _FIXED or issubclass(kind, np.generic)


def text_of(value: object) -> str:
    """Return the JSON text of a value; most are strings and numbers, which need no encoder."""
    if type(value) is int:
        return str(value)
    return encode_basestring_ascii(value) if type(value) is str else _ENCODER.encode(value)
