"""Keyed state: entries that go where the rows of their key go (R73).

The key of an entry has the values of `route_by`: the value of its one column, or a tuple of the
values of several. So an entry's place is known without its operator, and the entry follows its rows
when the number of instances changes. With several instances, each access checks that the rows of
the key come to this instance, so nobody looks for an entry at the wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from holdfast.regions.base.saved import StateError

#: Data type of the bytes of a map: a JSON text, a list of pairs of key and value.
MAP: Final = "|S1"

#: Types of keys, and of the parts of tuples.
_PARTS: Final = frozenset({str, int, bool, type(None)})

Key: TypeAlias = "str | int | bool | tuple[str | int | bool | None, ...] | None"

T = TypeVar("T")


class Watch(Protocol):
    """Hears of what an operator does to a map."""

    def given(self, key: Key, value: object) -> None:
        """Hear that the operator gets a value, and may change it in place."""

    def changed(self, key: Key, *, added: bool) -> None:
        """Hear that an entry was set; `added` says that it was not there before."""

    def removed(self, key: Key) -> None:
        """Hear that an entry was removed."""


class MapState(MutableMapping[Key, T], Generic[T]):
    """A dict by the values of `route_by`, whose entries follow the rows of their keys.

    Keys are str, int, bool or None, as ``column.to_pylist()`` has them, and tuples of these where
    `route_by` names several columns. Values are those of a `ValueState`; replace them, or change
    them in place.

    Parameters
    ----------
    instance, parallelism : int
        Number of its instance, and how many instances there are.
    """

    def __init__(
        self,
        entries: Iterable[tuple[Key, T]] = (),
        *,
        where: str = "the map",
        instance: int = 0,
        parallelism: int = 1,
    ) -> None:
        self._where = where
        self._instance = instance
        self._parallelism = parallelism
        self._entries: dict[Key, T] = dict(entries)
        self._watch: Watch | None = None

    def __getitem__(self, key: Key) -> T:
        # An entry that is found was put here, so only a missing one may lie at another instance.
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
        return key if _PARTS.issuperset(map(type, parts)) else self._checked(key)

    def _checked(self, key: Any) -> Key:
        """Return the key as it is kept, if its rows come to this instance."""
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


def key_name(key: Key) -> str:
    """Return the name by which rows of a key are routed; TypeError if it is no key."""
    from holdfast.regions.base.splitting import json_text, name_of_text

    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if type(part) not in _PARTS:
            raise TypeError(f"{type(part).__name__} is no part of a key")
    if isinstance(key, tuple):
        return f"[{','.join(map(json_text, parts))}]"
    return name_of_text(key) if isinstance(key, str) else json_text(key)


def instance_of(name: str, instances: int) -> int:
    """Return the instance to which the rows of a key go, in every run and every process."""
    # Python's own hash of a text differs from process to process.
    import zlib

    return zlib.crc32(name.encode()) % instances


def python_value(value: Any) -> Any:
    """Return a scalar of NumPy as the equal value of Python; any other value as it is."""
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0:
        return value
    # Times in nanoseconds would become integers.
    return value if value.dtype.kind in "mM" else value.item()


def encode_map(state: MapState[Any], plain: Callable[[object], object]) -> bytes:
    """Return the bytes of a map; `plain` encodes a value for JSON."""
    entries = [[key, plain(value)] for key, value in state.items()]
    return json.dumps(entries, separators=(",", ":"), allow_nan=False).encode()


def decode_map(data: memoryview, rich: Callable[[Any], Any]) -> Iterator[tuple[Key, Any]]:
    """Return the entries of a map; `rich` undoes `plain` of `encode_map`."""
    for key, value in json.loads(bytes(data)):
        yield _key_of(key), rich(value)


def divide_map(parts: Iterable[memoryview], instances: int) -> list[bytes]:
    """Divide the maps of the instances of an operator over its new ones."""
    divided: list[list[Any]] = [[] for _ in range(instances)]
    for part in parts:
        for entry in json.loads(bytes(part)):
            divided[instance_of(key_name(_key_of(entry[0])), instances)].append(entry)
    return [json.dumps(entries, separators=(",", ":")).encode() for entries in divided]


def _key_of(plain: Any) -> Key:
    key: Key = tuple(plain) if isinstance(plain, list) else plain
    return key


def _plain_key(key: Any) -> Any:
    """Return a key without NumPy's scalars, which are equal to Python's and not kept."""
    if isinstance(key, tuple):
        return tuple(_plain_key(part) for part in key)
    return python_value(key)
