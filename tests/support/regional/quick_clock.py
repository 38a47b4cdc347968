"""A clock for drivers that tests start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.regions.base.clock import Clock


class QuickClock(Clock):
    """A clock whose pauses take no time: it is moved forward instead.

    `pauses` has the length of each, in milliseconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []

    def now_ms(self) -> int:
        return super().now_ms() + sum(self.pauses)

    def pause(self, ms: int) -> bool:
        self.pauses.append(ms)
        return super().pause(0)


class StoppedClock:
    """Stops a clock between steps."""

    def __init__(self, clock: QuickClock, step: timedelta) -> None:
        self._step_ms = step // timedelta(milliseconds=1)
        self.ms = datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000
        clock.now_ms = lambda: int(self.ms)  # type: ignore[method-assign]

    def step(self, steps: float = 1) -> datetime:
        """Go forward; returns the time."""
        self.ms += steps * self._step_ms
        return datetime.fromtimestamp(self.ms / 1000, UTC)
