"""The clocks of a driver: one dates attempts, one measures time; and pauses between attempts."""

from __future__ import annotations

import threading
import time


def now_ms() -> int:
    """Milliseconds since the epoch, by the clock that dates attempts."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Milliseconds since some moment, on one machine; not the time of day, which may jump."""
    return time.monotonic_ns() // 1_000_000


class Clock:
    """Time of a pipeline's driver, and pauses that another thread can end."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()
        self.adjust()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by a clock that jumps only in `adjust`."""
        return elapsed_ms() + self._ahead_ms

    def adjust(self) -> None:
        """Follow the time of day after a jump. Do not measure time across this call."""
        self._ahead_ms = now_ms() - elapsed_ms()

    def pause(self, ms: int) -> bool:
        """Wait; returns False at once if `interrupt` was called before or during the pause."""
        return not self._interrupted.wait(ms / 1000)

    def interrupt(self) -> None:
        """End the pause under way, and all later ones until `resume`."""
        self._interrupted.set()

    def resume(self) -> None:
        """Let pauses last again."""
        self._interrupted.clear()
