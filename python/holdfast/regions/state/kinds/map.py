"""Maps: entries that follow the rows of their key (R73).

The key of an entry has the values of `route_by`: the value of its one column, or a tuple of values.
So an entry's place is known without its operator, and the entry follows its rows when the number of
instances changes. With several instances, each access checks that the rows of the key go to this
instance, so no access looks for an entry at the wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.regions.base.routing import KEY_PARTS, Key, instance_of, key_name
from holdfast.regions.base.saved import SavedState, StateError
from holdfast.regions.state.kinds.document import DocumentKind, LargeState, is_fixed, text_of
from holdfast.regions.state.kinds.encoding import MAP, json_bytes, key_of, plain, python_value

T = TypeVar("T")


class MapState(MutableMapping[Key, T], Generic[T]):
    """A dict by the values of `route_by`, whose entries follow the rows of their keys.

    Keys are str, int, bool or None, as ``column.to_pylist()`` has them, and tuples of these where
    `route_by` names several columns. Values are as in a `ValueState`; replace them, or change them
    in place. `instance` is the number of its instance, `parallelism` the number of instances.
    """

    def __init__(
        self,
        entries: Mapping[Key, T] | None = None,
        *,
        where: str = "the map",
        instance: int = 0,
        parallelism: int = 1,
    ) -> None:
        self._where = where
        self._instance = instance
        self._parallelism = parallelism
        self._entries: dict[Key, T] = dict(entries or {})
        self._watch: LargeMap | None = None

    def __getitem__(self, key: Key) -> T:
        # An entry that is found was put here; only a missing one may be at another instance.
        key = self._kept(key)
        try:
            value = self._entries[key]
        except KeyError:
            self._checked(key)
            raise
        if self._watch is not None:
            self._watch.given(key, value)
        return value

    def __setitem__(self, key: Key, value: T) -> None:
        key = self._kept(key)
        added = key not in self._entries
        if added:
            key = self._checked(key)
        self._entries[key] = value
        if self._watch is not None:
            self._watch.changed(key, added=added)

    def __delitem__(self, key: Key) -> None:
        key = self._kept(key)
        del self._entries[key]
        if self._watch is not None:
            self._watch.removed(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _kept(self, key: Any) -> Key:
        """Return the key as it is kept: for Python, 1.0 and NumPy's 1 name the entry of 1, too."""
        parts = key if isinstance(key, tuple) else (key,)
        return key if KEY_PARTS.issuperset(map(type, parts)) else self._checked(key)

    def _checked(self, key: Any) -> Key:
        """Return the key as it is kept, if its rows go to this instance."""
        plain: Key = _plain_key(key)
        try:
            name = key_name(plain)
        except TypeError:
            raise StateError(
                f"{self._where}: {key!r} is no key of a map; keys are str, int, bool or None, or "
                "tuples of these, as route_by names them: cast columns of other types"
            ) from None
        if self._parallelism > 1 and instance_of(name, self._parallelism) != self._instance:
            raise StateError(
                f"{self._where}: rows with the key {key!r} do not come to instance "
                f"{self._instance} of {self._parallelism}; the keys of a map are the values of the "
                "columns in route_by, in that order, so that its entries can follow their rows"
            )
        return plain


class LargeMap(LargeState):
    """Follows the changes of a `MapState`."""

    of = "map"
    kind = "value"
    dtype = MAP
    key = pa.schema({"key": pa.string()})
    # An entry has the order in which it was added.
    value = pa.schema({"order": pa.int64(), "entry": pa.string()})

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        super().__init__(name, where, commit)
        self._next = 0
        # Keys that changed, and the ones among them that follow all others.
        self._changed: dict[Key, None] = {}
        self._added: dict[Key, None] = {}
        # Texts of the entries that may change in place.
        self._texts: dict[Key, str] = {}
        # Keys with booleans, as they are kept: a program may name the same entries by 0 and 1.
        self._booleans: dict[Key, Key] = {}

    @classmethod
    def text(cls, name: str, rows: pa.Table) -> SavedState:
        """See `LargeState`."""
        return super().text(name, rows.sort_by([("order", "ascending"), ("key", "ascending")]))

    def follow(self, handle: MapState[Any], *, written: bool) -> None:
        """See `LargeState`."""
        handle._watch = self
        if written:
            self._booleans = {key: key for key in handle if _integers(key) is not key}
        else:
            for key in handle:
                self.changed(key, added=True)

    def given(self, key: Key, value: Any) -> None:
        """Note that the operator has a value."""
        if not is_fixed(type(value)) and key not in self._texts:
            self._texts[key] = self._entry(key, {key: value})

    def changed(self, key: Key, *, added: bool) -> None:
        """Note that an entry was set, and whether it is new."""
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

    def prepare(self, content: dict[Key, Any]) -> None:
        """See `LargeState`."""
        for key, before in self._texts.items():
            if key not in self._changed and self._entry(key, content) != before:
                self._changed[key] = None
        put = [key for key in self._changed if key in content]
        # In the order in which they were added; `_changed` may know a key from before.
        put = [*(key for key in put if key not in self._added), *self._added]
        texts = []
        for key in put:
            texts.append(self._entry(key, content))
            if not is_fixed(type(content[key])):
                self._texts[key] = texts[-1]
            else:
                self._texts.pop(key, None)
        fresh = len(self._added)
        orders = [None] * (len(put) - fresh) + [*range(self._next, self._next + fresh)]
        self._next += fresh
        self._removed = [_name(key) for key in self._changed if key not in content]
        self._put([_name(key) for key in put], orders, texts)
        self._changed, self._added = {}, {}

    def _entry(self, key: Key, state: dict[Key, Any]) -> str:
        kept = self._booleans.get(key, _integers(key))
        return f"[{text_of(kept)},{text_of(plain(state[key]))}]"

    def _learn(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._next = int(np.max(rows.column("order").to_numpy())) + 1

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Let older entries keep their places."""
        orders = rows.column("order").combine_chunks()
        if not orders.null_count:
            return rows
        known = self.get(rows).column("order")
        return rows.set_column(1, "order", pc.coalesce(orders, known))


class MapKind(DocumentKind):
    """A dict by the values of `route_by`, see `StateRegistry.map`."""

    kind = "value"
    noun = "map"
    advice = "through {place}[key] = ..."
    form = "a map"
    handle: MapState[Any]
    large_state = LargeMap

    def encoded(self, content: Any) -> SavedState:
        """See `Kind`."""
        self._make(None, {})
        self.handle.update(content)
        return self._text(self._content)

    def _make(self, saved: SavedState | None, content: Any) -> None:
        scope = self.scope
        self.handle = MapState(
            content, where=self.where, instance=scope.instance, parallelism=scope.parallelism
        )

    @property
    def _content(self) -> dict[Key, Any]:
        return self.handle._entries

    def _encode(self, content: dict[Key, Any]) -> tuple[bytes, str]:
        return json_bytes([[key, plain(value)] for key, value in content.items()]), MAP


def divide_map(parts: Iterable[memoryview], instances: int) -> list[bytes]:
    """Divide the maps of the instances of an operator over its new ones."""
    divided: list[list[Any]] = [[] for _ in range(instances)]
    for part in parts:
        for entry in json.loads(bytes(part)):
            divided[instance_of(key_name(key_of(entry[0])), instances)].append(entry)
    return [json_bytes(entries) for entries in divided]


def _plain_key(key: Any) -> Any:
    """Return a key without NumPy's scalars, which are equal to Python's and not kept."""
    if isinstance(key, tuple):
        return tuple(_plain_key(part) for part in key)
    return python_value(key)


def _name(key: Key) -> str:
    """Return a text that is equal for equal keys."""
    return text_of(_integers(key))


def _integers(key: Key) -> Key:
    """Return the key itself, or an equal one with 0 and 1 for booleans."""
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, tuple) and any(isinstance(part, bool) for part in key):
        return tuple(int(part) if isinstance(part, bool) else part for part in key)
    return key
