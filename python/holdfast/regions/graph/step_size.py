"""The number of rows in an operator's batches."""

from __future__ import annotations

from typing import Final

FIRST_ROWS: Final = 64
STEPS_PER_TIMEOUT: Final = 50


class StepSize:
    """Rows of the batches that a region's graph is fed.

    A barrier does not interrupt an operator, so it waits for the current batch. If barriers may
    overtake, a batch should take a small part of the alignment timeout `timeout_ms`, however slow
    the operator is. The size begins small and doubles while batches are quick. After the first slow
    batch it only shrinks. `rows_max` is the largest size, and the only one without a timeout.
    """

    def __init__(self, rows_max: int, timeout_ms: int | None) -> None:
        self._rows_max = rows_max
        self._budget_ms = None if timeout_ms is None else timeout_ms / STEPS_PER_TIMEOUT
        self._growing = True
        self.rows = rows_max if timeout_ms is None else min(FIRST_ROWS, rows_max)

    def took(self, ms: float) -> None:
        """Learn the longest time of a batch of this size."""
        if self._budget_ms is None:
            return
        if ms > self._budget_ms:
            self._growing = False
            self.rows = max(1, int(self.rows * self._budget_ms / ms))
        elif self._growing and 2 * ms <= self._budget_ms:
            self.rows = min(self._rows_max, 2 * self.rows)
