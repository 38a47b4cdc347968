"""Warnings that may repeat with every batch, and end no query."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

#: Seconds between two warnings of one kind.
PAUSE_S: Final = 60.0


class SparingLog:
    """Writes a warning of each kind at most once a minute, with the number that it left out."""

    def __init__(
        self, log: logging.Logger, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._seconds = seconds
        #: By kind: the time of the last warning, and the number left out since.
        self._warned: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, text: str) -> None:
        """Warn, unless a warning of this kind was written less than a minute ago."""
        now_s = self._seconds()
        warned_s, left_out = self._warned.get(kind, (-math.inf, 0))
        if now_s - warned_s < PAUSE_S:
            self._warned[kind] = warned_s, left_out + 1
            return
        self._warned[kind] = now_s, 0
        more = f" ({left_out} more warnings of this kind since the last one)" if left_out else ""
        self._log.warning("%s%s", text, more)
