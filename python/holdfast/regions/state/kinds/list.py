"""Lists, which are split over another number of instances, and unions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any, ClassVar, Final, Generic, TypeVar

import pyarrow as pa

from holdfast.regions.base.saved import SavedState, StateKind
from holdfast.regions.state.kinds.document import DocumentKind, LargeState, is_fixed, text_of
from holdfast.regions.state.kinds.encoding import encode_value, plain

T = TypeVar("T")

#: Items by which the beginning of a list is found again after its first items were removed.
_ALIKE: Final = 16


class ListState(Generic[T]):
    """A list of values as in `ValueState`, which can be split over another number of instances."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.items = list(items)

    def append(self, item: T) -> None:
        """Add one item at the end."""
        self.items.append(item)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class LargeList(LargeState):
    """Finds the changes of a list."""

    of = "list"
    kind = "list"
    key = pa.schema({"at": pa.int64()})
    value = pa.schema({"item": pa.string()})

    def __init__(self, name: str, where: str, commit: str | None = None) -> None:
        super().__init__(name, where, commit)
        # Number of the first item in the table, and the items there.
        self._first = 0
        self._before: list[Any] = []
        # Texts of the items that may change in place, by number.
        self._texts: dict[int, str] = {}

    def follow(self, handle: ListState[Any], *, written: bool) -> None:
        """See `LargeState`."""
        if written:
            self._before = list(handle.items)
            for at in _changing(handle.items):
                self._texts[self._first + at] = text_of(plain(handle.items[at]))

    def prepare(self, content: list[Any]) -> None:
        """See `LargeState`."""
        gone = _gone(self._before, content)
        self._removed = [*range(self._first, self._first + gone)]
        self._first += gone
        before = self._before[gone:]
        end = self._first + len(content)
        self._removed += range(end, self._first + len(before))
        for number in self._removed:
            self._texts.pop(number, None)
        changed = [*range(len(before), len(content))]
        if not all(map(is_, content, before)):
            changed += [
                at
                for at, (one, other) in enumerate(zip(content, before, strict=False))
                if one is not other
            ]
        texts = {at: text_of(plain(content[at])) for at in changed}
        for at in _changing(content):
            text = texts.get(at) or text_of(plain(content[at]))
            if self._texts.get(self._first + at) != text:
                texts[at] = self._texts[self._first + at] = text
        for at in changed:
            if is_fixed(type(content[at])):
                self._texts.pop(self._first + at, None)
        self._put([self._first + at for at in texts], [*texts.values()])
        self._before = list(content)

    def _learn(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._first = rows.column("at")[0].as_py()


class ListKind(DocumentKind):
    """A list that is split over instances, see `StateRegistry.list`."""

    kind: ClassVar[StateKind] = "list"
    noun = "list"
    advice = "through {place}.append(...) or {place}.items"
    form = "a list"
    handle: ListState[Any]
    large_state: ClassVar[type[LargeState] | None] = LargeList

    def _make(self, saved: SavedState | None, content: Any) -> None:
        self.handle = ListState(content or ())

    @property
    def _content(self) -> list[Any]:
        return self.handle.items

    def _encode(self, content: Any) -> tuple[bytes, str]:
        return encode_value(list(content))


class UnionKind(ListKind):
    """A list of which new regions receive all items, see `StateRegistry.union`."""

    kind = "union"
    form = "a union"
    large_state = None


def _gone(before: list[Any], now: list[Any]) -> int:
    """Return how many items were removed from a list's beginning, judged by a few of them."""
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


def _changing(items: list[Any]) -> Sequence[int]:
    """Return the places of items that may change in place."""
    kinds = {kind for kind in set(map(type, items)) if not is_fixed(kind)}
    return [at for at, item in enumerate(items) if type(item) in kinds] if kinds else ()
