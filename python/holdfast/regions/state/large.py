"""Large maps and lists: a checkpoint writes the entries that changed, into a table below.

A map or list is a text in each checkpoint, until that text has more than `DOCUMENT_BYTES`. From
then on its entries are rows of a table, for good. The operator goes on with the same objects.

Few entries are looked at to find those that changed. A string or a number does not change in place,
so it is another object if it changed. A list or dict may change in place once the operator has it,
so its text is compared with the one that was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from operator import is_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast._core import decode_rows
from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.keyed_map import MAP, Key
from holdfast.regions.state.tables.columns import Columns
from holdfast.regions.state.tables.stored_table import FrozenTable, Of, saved_commit, saved_of
from holdfast.regions.state.tables.table import OpenTable, TableState
from holdfast.regions.state.values import JSON, plain

#: Bytes of the text of a map or list, beyond which it becomes a table.
DOCUMENT_BYTES: Final = 64 << 10

#: Rows that one call writes.
_ROWS: Final = 100_000

#: Items by which the beginning of a list is found again after its first items went.
_ALIKE: Final = 16

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

_FIXED: Final = frozenset({type(None), bool, int, float, str, bytes})

#: Columns of the key and of the value. An entry of a map has the order in which it was added.
COLUMNS: Final[dict[str, tuple[pa.Schema, pa.Schema]]] = {
    "map": (
        pa.schema({"key": pa.string()}),
        pa.schema({"order": pa.int64(), "entry": pa.string()}),
    ),
    "list": (pa.schema({"at": pa.int64()}), pa.schema({"item": pa.string()})),
}


def document(name: str, of: Of, rows: pa.Table) -> SavedState:
    """Return the rows of a large state as a small one."""
    if of == "map":
        rows = rows.sort_by([("order", "ascending"), ("key", "ascending")])
    texts = rows.column("entry" if of == "map" else "item").to_pylist()
    data = f"[{','.join(texts)}]".encode()
    if of == "map":
        return SavedState(name, "value", MAP, (len(data),), memoryview(data))
    return SavedState(name, "list", JSON, (len(data),), memoryview(data))


def small_state(state: SavedState, read: Callable[[str], bytes]) -> SavedState:
    """Return a large state as a small one, and any other state as it is.

    `read` returns the rows of a commit, see `holdfast._core.read_table`.
    """
    if state.kind != "table" or (of := saved_of(state.data)) == "table":
        return state
    key, value = (Columns.of(one, name="key", where=state.name) for one in COLUMNS[of])
    data = read(saved_commit(state.data))
    rows, columns = decode_rows(data, keys=key.layouts, values=value.layouts)
    arrays = [*key.arrays(columns[:1], rows), *value.arrays(columns[1:], rows)]
    schema = pa.schema([*key.schema, *value.schema])
    return document(state.name, of, pa.Table.from_arrays(arrays, schema=schema))


class LargeState:
    """The table of a large state. The subclasses find what changed."""

    of: Of

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        key, value = COLUMNS[self.of]
        columns = [Columns.of(one, name="key", where=where) for one in (key, value)]
        self._schema = pa.schema([*key, *value])
        self._name = name
        self._table = TableState(name, columns[0], columns[1])
        self._table._commit = commit
        self._removed: list[Any] = []
        self._rows: list[pa.Table] = []

    def read(self, open_table: OpenTable) -> pa.Table:
        """Return all rows."""
        self._table._begin(open_table)
        rows = pa.Table.from_batches(self._table.scan(), schema=self._schema)
        self._table._close()
        self._learn(rows)
        return rows

    def prepare(self, state: Any) -> None:
        """Find what changed since the last checkpoint.

        Raises
        ------
        StateError
            If a value cannot be kept.
        """
        raise NotImplementedError

    def write(self, open_table: OpenTable) -> FrozenTable:
        """Commit what `prepare` found."""
        self._table._begin(open_table)
        if self._removed:
            self._table.delete(self._removed)
        for rows in self._rows:
            self._table.upsert(self._numbered(rows))
        self._removed, self._rows = [], []
        frozen = self._table._freeze()
        columns = json.dumps({**json.loads(frozen.columns), "of": self.of}, separators=(",", ":"))
        return replace(frozen, columns=columns)

    def _learn(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def _numbered(self, rows: pa.Table) -> pa.Table:
        return rows

    def _put(self, *columns: Sequence[Any]) -> None:
        """Note rows to write; a column is one of the schema, in its order."""
        for start in range(0, len(columns[0]), _ROWS):
            slices = [column[start : start + _ROWS] for column in columns]
            self._rows.append(pa.table(slices, schema=self._schema))


class LargeMap(LargeState):
    """Follows the changes of a `MapState`."""

    of = "map"

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        super().__init__(name, where, commit)
        self._next = 0
        # Keys that changed, and those among them that come behind all others.
        self._changed: dict[Key, None] = {}
        self._added: dict[Key, None] = {}
        # Texts of the entries that may change in place.
        self._texts: dict[Key, str] = {}
        # Keys with booleans, as they are kept: a program may name the same entries by 0 and 1.
        self._booleans: dict[Key, Key] = {}

    def keep(self, keys: Iterable[Key]) -> None:
        """Note the keys that were read."""
        self._booleans = {key: key for key in keys if _integers(key) is not key}

    def given(self, key: Key, value: Any) -> None:
        """Note that the operator has a value."""
        if not _is_fixed(type(value)) and key not in self._texts:
            self._texts[key] = self._entry(key, {key: value})

    def changed(self, key: Key, *, added: bool) -> None:
        """Note that an entry was set, and whether it was not there before."""
        self._changed[key] = None
        if added:
            self._added[key] = None
            if _integers(key) is not key:
                self._booleans[key] = key

    def removed(self, key: Key) -> None:
        """Note that an entry was removed."""
        self._changed[key] = None
        for notes in (self._added, self._texts, self._booleans):
            notes.pop(key, None)

    def prepare(self, state: dict[Key, Any]) -> None:
        """See `LargeState`."""
        for key, before in self._texts.items():
            if key not in self._changed and self._entry(key, state) != before:
                self._changed[key] = None
        put = [key for key in self._changed if key in state]
        # In the order in which they were added; `_changed` may know a key from before.
        put = [*(key for key in put if key not in self._added), *self._added]
        texts = []
        for key in put:
            texts.append(self._entry(key, state))
            if not _is_fixed(type(state[key])):
                self._texts[key] = texts[-1]
            else:
                self._texts.pop(key, None)
        fresh = len(self._added)
        orders = [None] * (len(put) - fresh) + [*range(self._next, self._next + fresh)]
        self._next += fresh
        self._removed = [_name(key) for key in self._changed if key not in state]
        self._put([_name(key) for key in put], orders, texts)
        self._changed, self._added = {}, {}

    def _entry(self, key: Key, state: dict[Key, Any]) -> str:
        kept = self._booleans.get(key, _integers(key))
        return f"[{_text(kept)},{_text(plain(state[key]))}]"

    def _learn(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._next = int(np.max(rows.column("order").to_numpy())) + 1

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Let entries that were there keep their places."""
        orders = rows.column("order").combine_chunks()
        if not orders.null_count:
            return rows
        known = self._table.get(rows).column("order")
        return rows.set_column(1, "order", pc.coalesce(orders, known))


class LargeList(LargeState):
    """Finds the changes of a list."""

    of = "list"

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        super().__init__(name, where, commit)
        # Number of the first item in the table, and the items there.
        self._first = 0
        self._before: list[Any] = []
        # Texts of the items that may change in place, by number.
        self._texts: dict[int, str] = {}

    def keep(self, items: list[Any]) -> None:
        """Note the items that were read."""
        self._before = list(items)
        for at in _places(items, lambda kind: not _is_fixed(kind)):
            self._texts[self._first + at] = _text(plain(items[at]))

    def prepare(self, state: list[Any]) -> None:
        """See `LargeState`."""
        gone = _gone(self._before, state)
        self._removed = [*range(self._first, self._first + gone)]
        self._first += gone
        before = self._before[gone:]
        end = self._first + len(state)
        self._removed += range(end, self._first + len(before))
        for number in self._removed:
            self._texts.pop(number, None)
        changed = [*range(len(before), len(state))]
        if not all(map(is_, state, before)):
            changed += [
                at
                for at, (one, other) in enumerate(zip(state, before, strict=False))
                if one is not other
            ]
        texts = {at: _text(plain(state[at])) for at in changed}
        for at in _places(state, lambda kind: not _is_fixed(kind)):
            text = texts.get(at) or _text(plain(state[at]))
            if self._texts.get(self._first + at) != text:
                texts[at] = self._texts[self._first + at] = text
        for at in changed:
            if _is_fixed(type(state[at])):
                self._texts.pop(self._first + at, None)
        self._put([self._first + at for at in texts], [*texts.values()])
        self._before = list(state)

    def _learn(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._first = rows.column("at")[0].as_py()


def _gone(before: list[Any], now: list[Any]) -> int:
    """Return how many items went at the beginning of a list, as far as a few of them tell."""
    most = min(len(before), len(now))
    probes = [place for place in (0, _ALIKE, most // 2) if place < most]
    if any(_is_alike(before, place, now, place) for place in probes):
        return 0
    for place in probes:
        item = now[place]
        for at in range(place + 1, len(before)):
            if before[at] is item and _is_alike(before, at, now, place):
                return at - place
    return 0


def _is_alike(before: list[Any], at: int, now: list[Any], place: int) -> bool:
    return all(map(is_, before[at : at + _ALIKE], now[place : place + _ALIKE]))


def _places(items: list[Any], wanted: Callable[[type], bool]) -> Sequence[int]:
    """Return the places of items of wanted types."""
    kinds = {kind for kind in set(map(type, items)) if wanted(kind)}
    return [at for at, item in enumerate(items) if type(item) in kinds] if kinds else ()


def _is_fixed(kind: type) -> bool:
    """Say whether values of this type do not change in place."""
    return kind in _FIXED or issubclass(kind, np.generic)


def _text(value: object) -> str:
    """Return the JSON text of a value; most are strings and numbers, which need no encoder."""
    if type(value) is int:
        return str(value)
    return encode_basestring_ascii(value) if type(value) is str else _ENCODER.encode(value)


def _name(key: Key) -> str:
    """Return a text that is equal for equal keys."""
    return _text(_integers(key))


def _integers(key: Key) -> Key:
    """Return the key itself, or an equal one with 0 and 1 for booleans."""
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, tuple) and any(isinstance(part, bool) for part in key):
        return tuple(int(part) if isinstance(part, bool) else part for part in key)
    return key
