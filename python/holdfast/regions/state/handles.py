"""Handles of small states, which operators change through them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.tables.times import AttemptTimes, microseconds_of
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
    by_watermark : bool
        They count by the watermark, instead of the driver's clock.
    times : callable
        Returns the times of the attempt.
    """

    def __init__(
        self,
        default: T,
        *,
        ttl_us: int,
        by_watermark: bool,
        times: Callable[[], AttemptTimes],
    ) -> None:
        self._default = default
        self._ttl_us = ttl_us
        self._by_watermark = by_watermark
        self._times = times
        self._set_us: int | None = None
        self._content = copy.deepcopy(default)
        # The content when its life began, to find changes in place.
        self._encoded = encode_value(default)

    @property
    def value(self) -> T:
        """The content, or the default."""
        if self._is_over and not self._is_changed:
            self._content = copy.deepcopy(self._default)
            self._set_us, self._encoded = None, encode_value(self._content)
        return self._content

    @value.setter
    def value(self, content: T) -> None:
        # Also if it is the same again.
        self._content, self._encoded = content, (b"", "")

    def restore(self, saved: SavedState, content: T) -> None:
        """Take over what a checkpoint has; the life of content without one begins now."""
        self._content, self._encoded = content, encode_value(content)
        if saved.dtype == EXPIRING:
            record = json.loads(bytes(saved.data))
            if ("by" in record) == self._by_watermark:
                self._set_us = record["set"]
                return
        self._set_us = self._now_us

    def encoded(self) -> tuple[bytes, str]:
        """Return the content for a checkpoint, and its data type."""
        content = self.value
        # The first watermark comes behind rows.
        encoded = encode_value(content)
        begins = self._set_us is None and encoded != encode_value(self._default)
        if encoded != self._encoded or begins:
            self._encoded, self._set_us = encoded, self._now_us
        record = {"version": EXPIRING_VERSION, "set": self._set_us, "value": plain(content)}
        if self._by_watermark:
            record["by"] = "watermark"
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode(), EXPIRING

    @property
    def _is_over(self) -> bool:
        since_us, now_us = self._set_us, self._now_us
        return since_us is not None and now_us is not None and since_us + self._ttl_us <= now_us

    @property
    def _is_changed(self) -> bool:
        """Return whether this attempt has changed it: its life begins with the snapshot."""
        return encode_value(self._content) != self._encoded

    @property
    def _now_us(self) -> int | None:
        times = self._times()
        now = times.watermark if self._by_watermark else times.attempt
        return None if now is None else microseconds_of(now)


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
