"""The places where an operator keeps its states, to notice a replaced state (R90).

A checkpoint has the very array, or handle, that `open` received. ``self.sums = self.sums + 1``
makes another array and leaves the first one unchanged: a restart would lose the new sums. So places
are looked up when the operator has opened, and every snapshot checks them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Literal

import numpy as np

from holdfast.regions.base.saved import StateError
from holdfast.regions.state.kinds.kind import Kind

# Bounds of the search: levels, objects, and entries of one list or dict.
_DEPTH: Final = 4
_OBJECTS: Final = 10_000
_ENTRIES: Final = 1_000

_Step = tuple[Literal["attribute", "entry"], Any]

_Place = tuple[_Step, ...]
"""A way from the operator to a state."""

_MISSING: Final = object()


class Bindings:
    """The places of an operator's states when `open` returned.

    A place is an attribute, or an entry of a list, tuple or dict, some levels deep. A view of an
    array counts as the array. A state in no place is not watched: `open` may declare one only
    because the checkpoint has it. Objects of the `unwatched` types refer to all states themselves.
    """

    def __init__(
        self, operator: object, states: Mapping[str, Kind], *, unwatched: tuple[type, ...]
    ) -> None:
        self._operator = operator
        self._states = states
        self._places: dict[str, list[_Place]] = {}
        for place, value in _reachable(operator, unwatched):
            for name, state in states.items():
                if _is(value, state.handle):
                    self._places.setdefault(name, []).append(place)

    def check(self, where: str) -> None:
        """Fail if a state is in none of its places, or a place has something like it instead.

        A place may get another kind of object, or another state, while another place has the state.
        """
        for name, places in self._places.items():
            state = self._states[name]
            now = [(place, _look(self._operator, place)) for place in places]
            left = [(place, value) for place, value in now if not _is(value, state.handle)]
            replaced = [place for place, value in left if self._replaces(value, state.handle)]
            if replaced or len(left) == len(now):
                raise StateError(_message(where, state, (replaced or places)[0]))

    def _replaces(self, value: Any, state: Any) -> bool:
        """Say whether something that is no state looks like this one."""
        return (
            type(value) is type(state)
            and getattr(value, "shape", None) == getattr(state, "shape", None)
            and not any(_is(value, other.handle) for other in self._states.values())
        )


def _look(operator: object, place: _Place) -> Any:
    """Return the object at a place now."""
    found: Any = operator
    for kind, name in place:
        try:
            found = getattr(found, name) if kind == "attribute" else found[name]
        except (AttributeError, LookupError, TypeError):
            return _MISSING
    return found


def _message(where: str, state: Kind, at: _Place) -> str:
    steps = [f".{key}" if kind == "attribute" else f"[{key!r}]" for kind, key in at]
    place = "self" + "".join(steps)
    return (
        f"{where}: {place} was the {state.noun} state {state.name!r} when open() returned, and is "
        "something else now, which no checkpoint would hold; change the state in place, "
        f"{state.advice.format(place=place)}"
    )


def _reachable(operator: object, unwatched: tuple[type, ...]) -> Iterator[tuple[_Place, Any]]:
    """Yield the objects in the operator and their places, the nearest first, each object once."""
    seen = {id(operator)}
    todo: deque[tuple[_Place, Any]] = deque([((), operator)])
    while todo and len(seen) < _OBJECTS:
        place, holder = todo.popleft()
        for step, value in _parts(holder):
            if isinstance(value, (*unwatched, type, str, bytes, int, float)) or value is None:
                continue
            here = (*place, step)
            yield here, value
            if id(value) not in seen and len(here) < _DEPTH:
                seen.add(id(value))
                todo.append((here, value))


def _parts(holder: Any) -> Iterable[tuple[_Step, Any]]:
    """Return the objects directly in an object, without running code of the operator."""
    if isinstance(holder, dict):
        return [(("entry", key), value) for key, value in islice(holder.items(), _ENTRIES)]
    if isinstance(holder, (list, tuple)):
        return [(("entry", at), value) for at, value in enumerate(holder[:_ENTRIES])]
    attributes = dict(islice(getattr(holder, "__dict__", {}).items(), _ENTRIES))
    for kind in type(holder).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            value = getattr(holder, name, None)
            attributes.setdefault(name, value)
    return [(("attribute", name), value) for name, value in attributes.items()]


def _is(value: Any, state: Any) -> bool:
    """Say whether changing the value in place changes the state."""
    if value is state:
        return True
    if not hasattr(state, "dtype") or type(value) is not type(state):
        return False
    if isinstance(value, np.ndarray):
        return np.may_share_memory(value, state)
    return getattr(value, "base", None) is state
