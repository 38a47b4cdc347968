"""Turn the progress reports of a streaming query into the figures that are compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BatchFigures:
    """One micro-batch. Times are in milliseconds.

    Attributes
    ----------
    batch_ms
        Wall time of the whole batch (``triggerExecution``).
    commit_ms, updates_ms
        ``commitTimeMs`` and ``allUpdatesTimeMs``, summed by Spark over all tasks and here
        over all stateful operators.
    state_rows
        Keys in the state after the batch, as the provider reports them.
    """

    batch_id: int
    input_rows: int
    batch_ms: int
    commit_ms: int
    updates_ms: int
    state_rows: int

    @classmethod
    def from_progress(cls, progress: Mapping[str, Any]) -> BatchFigures:
        """Read one ``StreamingQueryProgress`` that was decoded from its JSON form."""
        operators = progress.get("stateOperators", [])
        return cls(
            batch_id=int(progress["batchId"]),
            input_rows=sum(int(s["numInputRows"]) for s in progress.get("sources", [])),
            batch_ms=int(progress["durationMs"]["triggerExecution"]),
            commit_ms=sum(int(op["commitTimeMs"]) for op in operators),
            updates_ms=sum(int(op["allUpdatesTimeMs"]) for op in operators),
            state_rows=sum(int(op["numRowsTotal"]) for op in operators),
        )


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median, smallest and largest of a few measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Summarise at least one value, or raise ValueError."""
        found = sorted(values)
        if not found:
            raise ValueError("expected at least one value, found none")
        return cls(median=statistics.median(found), low=found[0], high=found[-1])


def ratio(value: float, base: float) -> float | None:
    """Return ``value / base``, or None if the base is 0."""
    return value / base if base else None


def ratio_text(value: float, base: float) -> str:
    """Format a ratio for a table; ``-`` without one."""
    found = ratio(value, base)
    if found is None:
        return "-"
    return f"{found:.4f}" if found < 0.01 else f"{found:.2f}"
