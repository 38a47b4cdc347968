"""The clock that attempts are dated by."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since the epoch: attempts are dated by the driver's clock."""
    return time.time_ns() // 1_000_000
