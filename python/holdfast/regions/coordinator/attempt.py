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

    - `cause`: why it declined, or that it was silent when the answers were frozen.
    - `in_flight`: where the region's rows of this batch are stored.
    - `unsaved`: some decline left rows that it did not store, or may have.
    - `task`: the lost task that is to blame.
    - `events`: events to coordinators from before the acknowledged state, by operator.
    - `without_rows`: it ran because time passed, and had no rows.
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

    - `now_ms`: the latest time in an event.
    - `mandatory`: the attempt must be global though the pipeline is regional (R10, R25).
    - `forced`: it is mandatory only because too many checkpoints in a row were regional (R21).
    - `fail_fast`: the first decline aborts (R8).
    - `end_of_data`: the sources are exhausted, so every region flushes (R61).
    - `idle`: how long regions are idle, if such regions are retired (R66).
    - `watermark_idle`: the same, if the watermarks of idle regions move (R69).
    - `retiring`: regions to retire if they have no rows.
    - `woken`: regions to run if they have no rows, and milliseconds by which their watermark moves.
    - `owed`: regions that must answer.
    - `quarantined`: regions that only store their rows (R27).
    - `excused`: these, and regions that leave quarantine: if they fail, they are in it again.
    - `last_try`: it is mandatory, but regions have failed for too long: those that fail go into
      quarantine.
    - `snapshots`: by operator; a corrected snapshot replaces the one of the trigger (R32).
    - `waiting`: by operator: events that its coordinator sent before its snapshot.
    - `taking_back`: operators whose coordinator takes back the events of regions that fall back.
    - `awaited`: operators whose coordinator has not answered in this phase.
    - `frozen`: causes of the failed regions, once no answer can change them (R4).
    - `composed`: regions of the checkpoint that is being published.
    - `metadata`: the whole of that checkpoint.
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
        """Leave regions that were to be retired unchanged, without an answer."""
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
        """Count the failures so far: regions, or their lost tasks (R12)."""
        tasks = [self.regions[region].task for region in self.counted()]
        return tasks.count(None) + len({task for task in tasks if task is not None})

    def events(self, operator: str) -> CoordinatorEvents:
        """Return events that no state of the checkpoint has; none to ended regions (R31, R36)."""
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
        """Store acknowledgements, unless one of their regions has answered in another task.

        Then that task runs these regions, and answers for the others, too.
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
