"""Warnings of what may go wrong with every batch, and ends no query."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

#: Seconds between two warnings of one kind.
PAUSE_S: Final = 60.0


class SparingLog:
    """Writes a warning of each kind at most once a minute, and how many it left out.

    Parameters
    ----------
    log : logging.Logger
        Takes the warnings.
    seconds : callable, optional
        A clock in seconds that never goes back.
    """

    def __init__(
        self, log: logging.Logger, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._warned_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, kind: str, text: str) -> None:
        """Warn, unless a warning of this kind was written less than a minute ago."""
        now_s = self._seconds()
        warned_s = self._warned_s.get(kind)
        if warned_s is not None and now_s - warned_s < PAUSE_S:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._warned_s[kind] = now_s
        left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} more warnings of this kind since the last one)" if left_out else ""
        self._log.warning("%s%s", text, more)
