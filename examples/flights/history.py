"""Checks of the history of a regional pipeline after its trouble."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holdfast.regions.coordinator import FailedRegion
from holdfast.regions.driver.history import HistoryRow


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a checkpoint that ended.

    Attributes
    ----------
    row
        Its line in the history.
    in_flight
        Rows that its checkpoint holds as in-flight data, by region; regions without any are not
        listed.
    """

    row: HistoryRow
    in_flight: Mapping[str, int]

    @classmethod
    def from_event(cls, fields: Mapping[str, Any]) -> Attempt:
        """Read the report of a child."""
        failed = tuple(FailedRegion(**region) for region in fields["row"]["failed"])
        return cls(
            row=HistoryRow(**{**fields["row"], "failed": failed}), in_flight=fields["in_flight"]
        )


def verdicts(
    attempts: Sequence[Attempt], *, failing: str, failures: int, slow: str, batches: int
) -> Iterator[tuple[str, bool]]:
    """Judge a history.

    Parameters
    ----------
    attempts
        In the order in which they ended, over a restart.
    failing, failures
        The region that failed, and in how many attempts.
    slow
        The region that was slow.
    batches
        Number of micro-batches with input.

    Yields
    ------
    tuple of (str, bool)
        A statement, and True if it holds.
    """
    rows = [attempt.row for attempt in attempts]
    yield _ids(rows)
    yield _failing(rows, failing, failures)
    yield _caught_up(rows, failing)
    yield _slow(attempts, slow)
    last = rows[-1]
    yield (
        f"the last checkpoint, {last.id}, is {last.outcome}, covers batch {last.batch_id} and owes "
        f"{last.in_flight_rows:,} rows",
        last.outcome == "global" and last.batch_id == batches - 1 and last.in_flight_rows == 0,
    )


def _ids(rows: Sequence[HistoryRow]) -> tuple[str, bool]:
    covered = [row.batch_id for row in rows if row.outcome != "aborted"]
    good = all(before.id < after.id for before, after in pairwise(rows))
    return (
        f"no checkpoint id came twice, and no batch is missing between {covered[0]} and "
        f"{covered[-1]}",
        good and set(covered) == set(range(-1, covered[-1] + 1)),
    )


def _failing(rows: Sequence[HistoryRow], failing: str, failures: int) -> tuple[str, bool]:
    failed = [(row, region) for row in rows for region in row.failed]
    origins = sorted({region.origin for row, region in failed if region.origin is not None})
    regional = [row for row, _ in failed if row.outcome == "regional"]
    aborted = [row for row, _ in failed if row.outcome == "aborted"]
    # On a slow machine rows wait until an attempt that must be global: then two fail.
    attempts = "1 attempt" if len(aborted) == 1 else f"{len(aborted)} attempts"
    return (
        f"{failing} alone failed, {len(failed)} times: {len(regional)} regional checkpoints kept "
        f"its state of checkpoint {', '.join(map(str, origins))}, {attempts} that had to be global "
        f"{'was' if len(aborted) == 1 else 'were'} aborted",
        {region.region for _, region in failed} == {failing}
        and len(failed) == failures
        and len(origins) == 1
        and len(regional) >= 2
        and len(aborted) >= 1,
    )


def _caught_up(rows: Sequence[HistoryRow], failing: str) -> tuple[str, bool]:
    last = max((n for n, row in enumerate(rows) if row.failed), default=len(rows) - 1)
    after = next((row for row in rows[last + 1 :] if row.outcome == "global"), None)
    if after is None:
        return f"no global checkpoint followed the failures of {failing}", False
    return f"{failing} had caught up in checkpoint {after.id}, which is global", True


def _slow(attempts: Sequence[Attempt], slow: str) -> tuple[str, bool]:
    owed = {
        attempt.row.id: attempt.in_flight[slow]
        for attempt in attempts
        if attempt.in_flight.get(slow)
        and slow not in {region.region for region in attempt.row.failed}
    }
    return (
        f"{slow} contributed to {len(owed)} checkpoints whose barrier overtook rows of it, at most "
        f"{max(owed.values(), default=0):,}",
        bool(owed),
    )
