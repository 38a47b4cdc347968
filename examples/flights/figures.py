"""Figures of a run of a query, and the table of two providers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from harness.figures import BatchFigures, ratio_text
from harness.objects import StateObjects
from harness.providers import TITLES


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """One run of one query on one provider."""

    query: str
    provider: str
    batches: tuple[BatchFigures, ...]
    objects: StateObjects

    @property
    def commit_ms_sum(self) -> int:
        """``commitTimeMs`` summed over all batches and tasks, in milliseconds."""
        return sum(batch.commit_ms for batch in self.batches)

    @property
    def batch_ms_sum(self) -> int:
        """Wall time of all batches together, in milliseconds."""
        return sum(batch.batch_ms for batch in self.batches)

    @property
    def batch_ms_median(self) -> float:
        """Median wall time in milliseconds of the batches after batch 0, which warms the JVM up.

        Raises a ValueError if there is no batch after batch 0.
        """
        after_warm_up = [batch.batch_ms for batch in self.batches if batch.batch_id > 0]
        if not after_warm_up:
            raise ValueError(
                f"{self.query} on {self.provider}: expected at least one batch after batch 0, "
                f"found {len(self.batches)} batches in total"
            )
        return statistics.median(after_warm_up)


def figures_table(pairs: list[tuple[RunFigures, RunFigures]]) -> tuple[list[str], list[list[str]]]:
    """Lay out runs (base, other) with a ratio line under each pair, as columns and rows."""
    columns = [
        "query", "provider", "batches", "objects", ".crc twins", "MiB", "commit s", "batch s",
        "total s",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for base, other in pairs:
        rows += [_figures_row(base), _figures_row(other)]
        figures = zip(_figures(other), _figures(base), strict=True)
        rows.append(["", "ratio", "", *(ratio_text(value, basis) for value, basis in figures)])
        rows.append([""] * len(columns))
    return columns, rows[:-1]


def _figures(run: RunFigures) -> list[float]:
    return [
        run.objects.files,
        run.objects.crc_files,
        run.objects.files_bytes,
        run.commit_ms_sum,
        run.batch_ms_median,
        run.batch_ms_sum,
    ]


def _figures_row(run: RunFigures) -> list[str]:
    return [
        run.query,
        TITLES[run.provider],
        str(len(run.batches)),
        f"{run.objects.files:,}",
        f"{run.objects.crc_files:,}",
        f"{run.objects.files_bytes / 2**20:.2f}",
        f"{run.commit_ms_sum / 1000:.2f}",
        f"{run.batch_ms_median / 1000:.2f}",
        f"{run.batch_ms_sum / 1000:.2f}",
    ]
