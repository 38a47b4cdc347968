"""Values: small content of any shape, with a time to live or without one."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from holdfast.regions.base.saved import SavedState, StateError, StateKind
from holdfast.regions.state.kinds.document import DocumentKind
from holdfast.regions.state.kinds.encoding import (
    EXPIRING,
    EXPIRING_VERSION,
    encode_value,
    json_bytes,
    plain,
)
from holdfast.regions.state.kinds.kind import Scope
from holdfast.regions.state.tables.expiring import life_us
from holdfast.regions.state.tables.times import microseconds_of

T = TypeVar("T")


class ValueState(Generic[T]):
    """One value: None, bool, int, float, str, bytes, and lists and dicts (with str keys) of these.

    `value` is the content. Replace it, or change it in place.
    """

    def __init__(self, value: T) -> None:
        self.value = value


class ExpiringValue(ValueState[T]):
    """A value that is its default again once its life is over.

    Its life of `ttl_us` microseconds counts from the last attempt that changed or set it, by the
    driver's clock or by the watermark.
    """

    def __init__(self, default: T, ttl_us: int, *, by_watermark: bool, scope: Scope) -> None:
        self._default = default
        self._ttl_us = ttl_us
        self._by_watermark = by_watermark
        self._scope = scope
        self._set_us: int | None = None
        self._content = copy.deepcopy(default)
        # The content when its life began, to find changes in place.
        self._encoded = encode_value(default)

    @property
    def value(self) -> T:
        """The content, or the default."""
        since_us, now_us = self._set_us, self._now_us
        is_over = since_us is not None and now_us is not None and since_us + self._ttl_us <= now_us
        # The life of content that this attempt has changed begins with the snapshot.
        if is_over and encode_value(self._content) == self._encoded:
            self._content = copy.deepcopy(self._default)
            self._set_us, self._encoded = None, encode_value(self._content)
        return self._content

    @value.setter
    def value(self, content: T) -> None:
        # Even for equal content.
        self._content, self._encoded = content, (b"", "")

    def restore(self, saved: SavedState, content: T) -> None:
        """Take over a checkpoint's content; without a time by its clock, its life begins now."""
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
        # The first watermark follows rows.
        encoded = encode_value(content)
        begins = self._set_us is None and encoded != encode_value(self._default)
        if encoded != self._encoded or begins:
            self._encoded, self._set_us = encoded, self._now_us
        record = {"version": EXPIRING_VERSION, "set": self._set_us, "value": plain(content)}
        if self._by_watermark:
            record["by"] = "watermark"
        return json_bytes(record), EXPIRING

    @property
    def _now_us(self) -> int | None:
        times = self._scope.times
        now = times.watermark if self._by_watermark else times.attempt
        return None if now is None else microseconds_of(now)


class ValueKind(DocumentKind):
    """A value that belongs to an instance, see `StateRegistry.value`."""

    kind: ClassVar[StateKind] = "value"
    noun = "value"
    advice = "through {place}.value"
    form = "a value"
    handle: ValueState[Any]

    def __init__(self, scope: Scope, name: str, default: Any) -> None:
        super().__init__(scope, name)
        self._default = default

    def _make(self, saved: SavedState | None, content: Any) -> None:
        # Instances may share the default object, and an instance changes its state.
        self.handle = ValueState(copy.deepcopy(self._default) if saved is None else content)

    @property
    def _content(self) -> Any:
        return self.handle.value

    def _encode(self, content: Any) -> tuple[bytes, str]:
        return encode_value(content)


class BroadcastKind(ValueKind):
    """A value that is the same in all regions, see `StateRegistry.broadcast`."""

    kind = "broadcast"
    form = "a broadcast"


class ExpiringKind(ValueKind):
    """A value with a time to live, see `StateRegistry.value`."""

    handle: ExpiringValue[Any]

    def __init__(
        self, scope: Scope, name: str, default: Any, ttl: timedelta | str | None, ttl_by: str | None
    ) -> None:
        super().__init__(scope, name, default)
        if ttl_by not in (None, "watermark"):
            raise StateError(
                f"{self.where}: ttl_by={ttl_by!r} is not allowed: expected 'watermark'"
            )
        if ttl is None:
            raise StateError(f"{self.where}: ttl_by={ttl_by!r} needs a ttl")
        self.follows_watermark = ttl_by is not None
        self._ttl_us = life_us(ttl, self.where)

    def encoded(self, content: Any) -> SavedState:
        """See `Kind`."""
        # Its life begins when it is restored.
        return ValueKind(self.scope, self.name, None).encoded(content)

    def _make(self, saved: SavedState | None, content: Any) -> None:
        self.handle = ExpiringValue(
            self._default, self._ttl_us, by_watermark=self.follows_watermark, scope=self.scope
        )
        if saved is not None:
            self.handle.restore(saved, content)

    def _encode(self, content: Any) -> tuple[bytes, str]:
        return self.handle.encoded()
