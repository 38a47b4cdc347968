"""Records of ended attempts, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._core import RegionEntry
from holdfast.regions.coordinator.actions import Outcome
from holdfast.regions.coordinator.attempt import PendingAttempt


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedRegion:
    """A region that failed, and the origin of its state in the checkpoint; None after an abort."""

    region: str
    origin: int | None
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryRecord:
    """One ended attempt.

    Attributes
    ----------
    failed : tuple of FailedRegion
        By name; only the first ones if there are very many.
    unnamed : int
        Number of further failed regions.
    in_flight_rows : int
        Rows that the checkpoint stores as in-flight data, over all regions; 0 after an abort.
    cause : str
        Why it was aborted; else empty.
    started_ms, ended_ms : int
        Milliseconds since the epoch by the driver's clock, from events.
    run : str
        Start of the pipeline that made the attempt; empty inside the coordinator.
    """

    id: int
    batch_id: int
    kind: str
    outcome: Outcome
    failed: tuple[FailedRegion, ...] = ()
    in_flight_rows: int = 0
    cause: str = ""
    started_ms: int
    ended_ms: int
    unnamed: int = 0
    run: str = ""

    @property
    def ms(self) -> int:
        """Time from the trigger to the end, in milliseconds."""
        return self.ended_ms - self.started_ms

    @classmethod
    def of(cls, attempt: PendingAttempt, outcome: Outcome, cause: str = "") -> HistoryRecord:
        """Describe an attempt that has just ended."""
        completed: Mapping[str, RegionEntry] = {} if outcome == "aborted" else attempt.composed
        return cls(
            id=attempt.id,
            batch_id=attempt.trigger.batch_id,
            kind=attempt.trigger.kind,
            outcome=outcome,
            failed=tuple(
                FailedRegion(
                    region=region,
                    origin=completed[region].origin if region in completed else None,
                    cause=why,
                )
                for region, why in sorted(attempt.failed().items())
            ),
            in_flight_rows=sum(
                stored.rows
                for region in attempt.regions.keys() | attempt.quarantined  # others: no rows
                if (entry := completed.get(region)) is not None and entry.in_flight_bytes
                for stored in entry.in_flight
            ),
            cause=cause,
            started_ms=attempt.trigger.now_ms,
            ended_ms=attempt.now_ms,
        )
