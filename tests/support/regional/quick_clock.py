"""A clock for drivers that tests start."""

from __future__ import annotations

from holdfast.regions.base.clock import Clock


class QuickClock(Clock):
    """A clock that pauses move forward, and nothing else: they take no time.

    Attributes
    ----------
    pauses
        How long each took, in milliseconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []
        self._begun_ms = super().now_ms()

    def now_ms(self) -> int:
        return self._begun_ms + sum(self.pauses)

    def pause(self, ms: int) -> bool:
        self.pauses.append(ms)
        return super().pause(0)
