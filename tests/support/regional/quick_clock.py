"""A clock for drivers that tests start."""

from __future__ import annotations

from holdfast.regions.base.clock import Clock


class QuickClock(Clock):
    """A clock whose pauses take no time: it is moved forward instead.

    Attributes
    ----------
    pauses
        How long each took, in milliseconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []

    def now_ms(self) -> int:
        return super().now_ms() + sum(self.pauses)

    def pause(self, ms: int) -> bool:
        self.pauses.append(ms)
        return super().pause(0)
