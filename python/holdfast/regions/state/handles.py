"""Handles of small states, which operators change through them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from holdfast.regions.state.saved import SavedState
from holdfast.regions.state.times import AttemptTimes, microseconds_of
from holdfast.regions.state.values import EXPIRING, EXPIRING_VERSION, encode_value, plain

T = TypeVar("T")


class ValueState(Generic[T]):
    """One value: None, bool, int, float, str, bytes, and lists and dicts (with str keys) of these.

    Attributes
    ----------
    value
        The content. Replace it, or change it in place.
    """

    def __init__(self, value: T) -> None:
        self.value = value


class ExpiringValue(ValueState[T]):
    """A value that is its default again once its life is over.

    Its life counts from the last attempt that changed it, or set it.

    Parameters
    ----------
    ttl_us : int
        Microseconds.
    times : callable
        Returns the times of the attempt.
    """

    def __init__(self, default: T, *, ttl_us: int, times: Callable[[], AttemptTimes]) -> None:
        self._default = default
        self._ttl_us = ttl_us
        self._times = times
        self._set_us: int | None = None
        self._content = copy.deepcopy(default)
        # The content when its life began, to find changes in place.
        self._encoded = encode_value(default)

    @property
    def value(self) -> T:
        """The content, or the default."""
        if self._set_us is not None and self._set_us + self._ttl_us <= self._now_us:
            self._content = copy.deepcopy(self._default)
            self._set_us, self._encoded = None, encode_value(self._content)
        return self._content

    @value.setter
    def value(self, content: T) -> None:
        self._content, self._set_us = content, self._now_us

    def restore(self, saved: SavedState, content: T) -> None:
        """Take over what a checkpoint has; the life of content without one begins now."""
        self._content, self._encoded = content, encode_value(content)
        is_expiring = saved.dtype == EXPIRING
        self._set_us = json.loads(bytes(saved.data))["set"] if is_expiring else self._now_us

    def encoded(self) -> tuple[bytes, str]:
        """Return the content for a checkpoint, and its data type."""
        content = self.value
        if (encoded := encode_value(content)) != self._encoded:
            self._encoded, self._set_us = encoded, self._now_us
        record = {"version": EXPIRING_VERSION, "set": self._set_us, "value": plain(content)}
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode(), EXPIRING

    @property
    def _now_us(self) -> int:
        return microseconds_of(self._times().attempt)


class ListState(Generic[T]):
    """A list of such values that can be split over another number of instances."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.items = list(items)

    def append(self, item: T) -> None:
        """Add one item at the end."""
        self.items.append(item)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
