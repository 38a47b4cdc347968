"""One pending attempt: which regions take part, and what they answered, until that is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from holdfast._core import CheckpointMetadata, InFlight, Owner, RegionEntry, SegmentRef
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator.entries import CheckpointKind, entry_segments, in_flight_segments
from holdfast.regions.coordinator.events import Acked, Declined


class Phase(Enum):
    """What the attempt waits for."""

    SNAPSHOT = auto()
    RUNNING = auto()
    FALLBACK = auto()
    PUBLISHING = auto()


@dataclass(slots=True)
class RegionAnswer:
    """What is known of one region; a region without an answer is one that started.

    Attributes
    ----------
    acked : RegionEntry or None
        What it acknowledged.
    cause : str or None
        Why it declined, or that it was silent when the answers were frozen.
    in_flight : tuple of InFlight
        Where the region's rows of this batch are stored.
    unsaved : bool
        Some decline left rows behind that it did not store, or may have.
    task : str or None
        The lost task that alone is to blame.
    problem : Problem or None
        The first exception that was raised.
    """

    acked: RegionEntry | None = None
    cause: str | None = None
    in_flight: tuple[InFlight, ...] = ()
    unsaved: bool = False
    task: str | None = None
    problem: Problem | None = None

    @property
    def composable(self) -> bool:
        """Whether the failed region's rows are stored, or it had none."""
        return bool(self.in_flight) or not self.unsaved


@dataclass(kw_only=True)
class PendingAttempt:
    """The one attempt that is under way (R1).

    Attributes
    ----------
    pipeline : str
        First part of every owner.
    now_ms : int
        The latest time in an event.
    mandatory : bool
        The attempt must be global though the pipeline is regional (R10, R25).
    forced : bool
        It is mandatory only because too many checkpoints in a row were regional (R21).
    optional : bool
        The query goes on without its checkpoint if that does not come about in time.
    fail_fast : bool
        The first decline aborts (R8).
    end_of_data : bool
        The sources are exhausted, so that every region flushes (R61).
    restart : frozenset of str
        Regions past their staleness bound.
    owed : dict of str to RegionEntry
        Regions that must answer.
    snapshots : dict of str to bytes
        By operator; what a fallback corrected replaces what was taken at the trigger (R32).
    awaited : set of str
        Operators whose coordinator has not answered in this phase.
    frozen : mapping of str to str or None
        Causes of the failed regions, once no answer can change them (R4).
    composed : dict of str to RegionEntry
        What is being published, by region.
    metadata : CheckpointMetadata or None
        The same as a whole, once it is complete.
    """

    id: int
    pipeline: str
    batch_id: int
    kind: CheckpointKind
    started_ms: int
    now_ms: int
    mandatory: bool
    forced: bool
    optional: bool
    fail_fast: bool
    end_of_data: bool
    restart: frozenset[str]
    owed: dict[str, RegionEntry]
    properties: Mapping[str, str]
    phase: Phase = Phase.RUNNING
    regions: dict[str, RegionAnswer] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    frozen: Mapping[str, str] | None = None
    composed: dict[str, RegionEntry] = field(default_factory=dict)
    metadata: CheckpointMetadata | None = None
    _refused: list[tuple[Owner, SegmentRef]] = field(default_factory=list)

    def failed(self) -> Mapping[str, str]:
        """Return the causes of the regions that failed so far."""
        if self.frozen is not None:
            return self.frozen
        answers = self.regions.items()
        return {region: answer.cause for region, answer in answers if answer.cause is not None}

    def failures(self) -> int:
        """Count the failures so far: regions, or the lost tasks that they were in (R12)."""
        tasks = [answer.task for answer in self.regions.values() if answer.cause is not None]
        return tasks.count(None) + len({task for task in tasks if task is not None})

    def problem_of(self, region: str) -> Problem | None:
        """Return the exception that made a region fail, if one did."""
        answer = self.regions.get(region)
        return None if answer is None else answer.problem

    def started(self, region: str) -> None:
        """Expect an answer."""
        self.regions.setdefault(region, RegionAnswer())

    def wrong_with(self, event: Acked) -> str | None:
        """Say why the acknowledgement cannot be part of this attempt's checkpoint (R16)."""
        entry = event.entry
        if entry.origin != self.id or entry.failed:
            return f"acknowledged the state of checkpoint {entry.origin}"
        return None

    def acked(self, event: Acked) -> None:
        """Store an acknowledgement, unless there is an answer already (R3)."""
        answer = self.regions.setdefault(event.region, RegionAnswer())
        if answer.acked is None and answer.cause is None:
            answer.acked = event.entry
        else:
            self.refuse(event)

    def declined(self, event: Declined) -> None:
        """Store a decline, unless the region acknowledged: that is durable (R7)."""
        answer = self.regions.setdefault(event.region, RegionAnswer())
        if answer.acked is not None:
            self.refuse(event)
            return
        first = answer.cause is None
        answer.task = event.task if first or answer.task == event.task else None
        answer.problem = answer.problem or event.problem
        if first:
            answer.cause = event.cause
        if answer.in_flight:
            self.refuse(event)
            return
        answer.in_flight = tuple(event.in_flight)
        answer.unsaved |= event.had_rows and not event.in_flight

    def refuse(self, event: Acked | Declined) -> None:
        """Note what an answer wrote that is not part of the checkpoint (R3, R4)."""
        if isinstance(event, Acked):
            self._refused.extend(entry_segments(self.pipeline, event.entry))
        else:
            segments = in_flight_segments(self.pipeline, event.region, event.in_flight)
            self._refused.extend(segments)

    def released(self) -> dict[Owner, tuple[SegmentRef, ...]]:
        """Return the segments of refused answers, less those that the checkpoint refers to (R3)."""
        regions = {owner.region for owner, _ in self._refused}
        entries = (entry for region in regions if (entry := self.composed.get(region)) is not None)
        kept = {ref for entry in entries for _, _, ref in entry.refs()}
        released: dict[Owner, tuple[SegmentRef, ...]] = {}
        for owner, ref in dict.fromkeys(self._refused):
            if ref not in kept:
                released[owner] = (*released.get(owner, ()), ref)
        return released

    def freeze(self, cause: str) -> None:
        """Decline for every region that is silent: from here on, no answer counts (R4)."""
        for region in self.owed:
            self.started(region)
        for answer in self.regions.values():
            if answer.acked is None and answer.cause is None:
                answer.cause = cause
                answer.unsaved = True
        self.frozen = self.failed()
