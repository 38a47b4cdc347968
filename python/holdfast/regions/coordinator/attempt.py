"""The pending attempt: the regions that take part, and their answers until these are frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from holdfast._core import CheckpointMetadata, InFlight, Owner, RegionEntry, SegmentRef
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator.actions import CoordinatorEvents
from holdfast.regions.coordinator.events import Acked, AckedTogether, Declined, Trigger
from holdfast.regions.coordinator.idle import IdleTime, is_retired
from holdfast.regions.coordinator.regions import Regions


class Phase(Enum):
    """The answer that the attempt waits for."""

    SNAPSHOT = auto()
    RUNNING = auto()
    FALLBACK = auto()
    PUBLISHING = auto()


@dataclass(slots=True)
class RegionAnswer:
    """The answer of one region; one without any fields set has only started.

    Attributes
    ----------
    cause : str or None
        Why it declined, or that it was silent when the answers were frozen.
    in_flight : tuple of InFlight
        Where the region's rows of this batch are stored.
    unsaved : bool
        Some decline left rows behind that it did not store, or may have.
    task : str or None
        The lost task that is to blame.
    events : sequence of (str, bytes)
        Events to coordinators from before the acknowledged state, by operator.
    without_rows : bool
        It ran because time passed, and had no rows.
    """

    acked: RegionEntry | None = None
    cause: str | None = None
    in_flight: tuple[InFlight, ...] = ()
    unsaved: bool = False
    task: str | None = None
    problem: Problem | None = None
    events: Sequence[tuple[str, bytes]] = ()
    without_rows: bool = False


@dataclass(kw_only=True)
class PendingAttempt:
    """The one attempt that is under way (R1).

    Attributes
    ----------
    now_ms : int
        The latest time in an event.
    mandatory : bool
        The attempt must be global though the pipeline is regional (R10, R25).
    forced : bool
        It is mandatory only because too many checkpoints in a row were regional (R21).
    fail_fast : bool
        The first decline aborts (R8).
    end_of_data : bool
        The sources are exhausted, so every region flushes (R61).
    idle : IdleTime or None
        How long regions are idle, if such regions are retired (R66).
    watermark_idle : IdleTime or None
        The same, if the watermarks of such regions go on (R69).
    retiring : dict of str to RegionEntry
        Regions to retire if they have no rows.
    woken : mapping of str to int
        Regions to run if they have no rows, and milliseconds that their watermark goes on.
    owed : dict of str to RegionEntry
        Regions that must answer.
    quarantined : frozenset of str
        Regions that only store their rows (R27).
    excused : frozenset of str
        These, and regions that come out of quarantine: where they fail, they are in it again.
    last_try : bool
        It is mandatory, but regions have failed for too long: those that fail go into quarantine.
    snapshots : dict of str to bytes
        By operator; a corrected snapshot replaces the one of the trigger (R32).
    waiting : dict of str to mapping
        By operator: events that its coordinator sent before its snapshot.
    taking_back : set of str
        Operators whose coordinator takes back the events of regions that fall back.
    awaited : set of str
        Operators whose coordinator has not answered in this phase.
    frozen : mapping of str to str or None
        Causes of the failed regions, once no answer can change them (R4).
    composed : Regions
        Regions of the checkpoint that is being published.
    metadata : CheckpointMetadata or None
        The whole of that checkpoint.
    """

    id: int
    pipeline: str
    trigger: Trigger
    now_ms: int
    mandatory: bool
    forced: bool
    fail_fast: bool
    end_of_data: bool
    restart: frozenset[str]
    idle: IdleTime | None
    watermark_idle: IdleTime | None
    retiring: dict[str, RegionEntry]
    woken: Mapping[str, int]
    owed: dict[str, RegionEntry]
    quarantined: frozenset[str] = frozenset()
    excused: frozenset[str] = frozenset()
    last_try: bool = False
    phase: Phase = Phase.RUNNING
    regions: dict[str, RegionAnswer] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    waiting: dict[str, Mapping[str, tuple[tuple[int, bytes], ...]]] = field(default_factory=dict)
    taking_back: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    frozen: Mapping[str, str] | None = None
    composed: Regions = field(default_factory=Regions)
    metadata: CheckpointMetadata | None = None
    _refused: list[tuple[Owner, SegmentRef]] = field(default_factory=list)

    def failed(self) -> Mapping[str, str]:
        """Return the causes of the regions that failed so far."""
        if self.frozen is not None:
            return self.frozen
        answers = self.regions.items()
        return {region: answer.cause for region, answer in answers if answer.cause is not None}

    def retire_none(self) -> None:
        """Let regions that were to be retired stay as they are, as if they had not answered."""
        for region in self.retired():
            del self.regions[region]

    def retired(self) -> list[str]:
        """Return the regions that are to be retired and have acknowledged that."""
        answers = {region: self.regions.get(region) for region in self.retiring}
        return [
            region
            for region, answer in answers.items()
            if answer is not None and answer.acked is not None and is_retired(answer.acked)
        ]

    def rested(self) -> dict[str, int]:
        """Return regions that ran without rows, with the last checkpoint of their rows."""
        failed = self.failed()
        before = {} if self.idle is None else self.idle.rested
        rested = {}
        for region in before.keys() | self.woken.keys():
            answer = self.regions.get(region)
            stays = region in before and (answer is None or region in failed)
            if region in self.composed and (stays or (answer is not None and answer.without_rows)):
                rested[region] = before.get(region) or self.owed[region].origin
        return rested

    def counted(self) -> dict[str, str]:
        """Return the causes of the failed regions that count: those that are not excused."""
        failed = self.failed().items()
        return {region: cause for region, cause in failed if region not in self.excused}

    def failures(self) -> int:
        """Count the failures so far: regions, or the lost tasks that they were in (R12)."""
        tasks = [self.regions[region].task for region in self.counted()]
        return tasks.count(None) + len({task for task in tasks if task is not None})

    def events(self, operator: str) -> CoordinatorEvents:
        """Return the events of a coordinator that no state of the checkpoint reflects (R31, R36).

        A region whose data has ended never runs again, so nothing waits for it.
        """
        failed = self.failed()
        healthy = self.regions.keys() - failed.keys()
        done = self.composed.finished.keys()
        taken_back = failed.keys() if operator in self.taking_back else frozenset()
        return CoordinatorEvents(
            waiting={
                region: waiting
                for region, waiting in self.waiting.get(operator, {}).items()
                if region not in healthy | done and region not in taken_back
            },
            received=tuple(
                (region, event)
                for region, answer in self.regions.items()
                if region in healthy
                for to, event in answer.events
                if to == operator
            ),
        )

    def started(self, region: str) -> None:
        """Expect an answer."""
        self.regions.setdefault(region, RegionAnswer())

    def acked_together(self, event: AckedTogether) -> None:
        """Store acknowledgements, unless there is an answer of one of their regions already.

        Then another task runs these regions, and answers for the others, too.
        """
        answers = [self.regions.get(ack.region, RegionAnswer()) for ack in event.acks]
        fresh = all(answer.acked is None and answer.cause is None for answer in answers)
        for ack in event.acks:
            if fresh:
                self.acked(ack)
            else:
                self.refuse(ack)

    def acked(self, event: Acked) -> None:
        """Store an acknowledgement, unless there is an answer already (R3)."""
        answer = self.regions.setdefault(event.region, RegionAnswer())
        if answer.acked is None and answer.cause is None:
            answer.acked, answer.events = event.entry, event.events
            answer.without_rows = event.without_rows
        else:
            self.refuse(event)

    def declined(self, event: Declined) -> None:
        """Store a decline, unless the region acknowledged: an acknowledgement is durable (R7)."""
        answer = self.regions.setdefault(event.region, RegionAnswer())
        if answer.acked is not None:
            self.refuse(event)
            return
        if answer.cause is None:
            answer.cause, answer.task = event.cause, event.task
        answer.problem = answer.problem or event.problem
        if answer.in_flight:
            self.refuse(event)
            return
        answer.in_flight = tuple(event.in_flight)
        answer.unsaved |= event.had_rows and not event.in_flight

    def refuse(self, event: Acked | Declined) -> None:
        """Note the segments of an answer that is not part of the checkpoint (R3, R4)."""
        if isinstance(event, Acked):
            for operator, store, ref in event.entry.refs():
                owner = Owner(self.pipeline, operator, event.entry.region, store)
                self._refused.append((owner, ref))
        else:
            owners = RegionOwners(self.pipeline, event.region)
            for stored in event.in_flight:
                if stored.ref is not None:
                    self._refused.append((owners.in_flight(stored.created), stored.ref))

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
        """Decline for every silent region: from here on, no answer counts (R4)."""
        for region in self.owed:
            self.started(region)
        for answer in self.regions.values():
            if answer.acked is None and answer.cause is None:
                answer.cause = cause
                answer.unsaved = True
        self.frozen = self.failed()
