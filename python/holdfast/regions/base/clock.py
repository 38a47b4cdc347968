"""The clock that attempts are dated by, and the pauses between them."""

from __future__ import annotations

import threading
import time


def now_ms() -> int:
    """Milliseconds since the epoch: attempts are dated by the driver's clock."""
    return time.time_ns() // 1_000_000


class Clock:
    """Time as the driver of a pipeline has it, and pauses that another thread can end."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return now_ms()

    def pause(self, ms: int) -> bool:
        """Wait.

        Parameters
        ----------
        ms : int
            Milliseconds.

        Returns
        -------
        bool
            False if `interrupt` was called meanwhile, or before; then there is no need to wait.
        """
        return not self._interrupted.wait(ms / 1000)

    def interrupt(self) -> None:
        """End the pause under way, and all that follow, until `resume`."""
        self._interrupted.set()

    def resume(self) -> None:
        """Let pauses be pauses again."""
        self._interrupted.clear()
