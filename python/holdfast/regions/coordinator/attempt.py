"""One pending attempt: who was asked, who answered what, until the answers are frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from holdfast._core import CheckpointMetadata, InFlight, RegionEntry, SegmentRef
from holdfast.regions.coordinator.actions import ReleaseSegments
from holdfast.regions.coordinator.entries import Kind, segments
from holdfast.regions.coordinator.events import Acked, Declined
from holdfast.regions.problem import Problem


class Phase(Enum):
    """What the attempt waits for."""

    SNAPSHOT = auto()
    RUNNING = auto()
    FALLBACK = auto()
    PUBLISHING = auto()


@dataclass(slots=True)
class RegionAnswers:
    """Answers of the members of one region.

    Attributes
    ----------
    silent : set of str
        Members that started and have not answered.
    acks : dict of str to RegionEntry
        By member.
    causes : dict of str to str
        By member that declined, or was silent when the answers were frozen.
    in_flight : tuple of InFlight
        Where the region's rows of this batch are stored.
    unsaved : bool
        Some decline left rows behind that it did not store, or may have.
    task : str or None
        The lost task that alone is to blame.
    problem : Problem or None
        The first exception that was told.
    """

    silent: set[str] = field(default_factory=set)
    acks: dict[str, RegionEntry] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    in_flight: tuple[InFlight, ...] = ()
    unsaved: bool = False
    task: str | None = None
    problem: Problem | None = None

    @property
    def failed(self) -> bool:
        """Whether at least one member failed: then all of them fall back (R6)."""
        return bool(self.causes)

    @property
    def cause(self) -> str:
        """Every cause once, in the order of the declines."""
        return "; ".join(dict.fromkeys(self.causes.values()))

    @property
    def composable(self) -> bool:
        """Whether the failed region's rows are stored, or it had none.

        What its other members acknowledged is dead, and they may have had rows.
        """
        return bool(self.in_flight) or not (self.unsaved or self.acks)

    def segments(self) -> set[SegmentRef]:
        """Return the segments of all stored answers."""
        found: set[SegmentRef] = set(segments(in_flight=self.in_flight))
        for entry in self.acks.values():
            found |= segments(entry)
        return found


@dataclass(kw_only=True)
class PendingAttempt:
    """The one attempt that is under way (R1).

    Attributes
    ----------
    now_ms : int
        The latest time that an event told.
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
    batch_id: int
    kind: Kind
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
    regions: dict[str, RegionAnswers] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    frozen: Mapping[str, str] | None = None
    composed: dict[str, RegionEntry] = field(default_factory=dict)
    metadata: CheckpointMetadata | None = None

    def failed(self) -> Mapping[str, str]:
        """Return the causes of the regions that failed so far."""
        if self.frozen is not None:
            return self.frozen
        return {region: answers.cause for region, answers in self.regions.items() if answers.failed}

    def failures(self) -> int:
        """Count the failures so far: regions, or the lost tasks that they were in (R12)."""
        failed = [(region, a.task) for region, a in self.regions.items() if a.failed]
        alone = sum(task is None for _, task in failed)
        return alone + len({task for _, task in failed if task is not None})

    def problem_of(self, region: str) -> Problem | None:
        """Return the exception that made a region fail, if one did."""
        answers = self.regions.get(region)
        return None if answers is None else answers.problem

    def started(self, region: str, member: str) -> None:
        """Expect an answer."""
        answers = self._answers(region)
        if member not in answers.acks and member not in answers.causes:
            answers.silent.add(member)

    def wrong_with(self, event: Acked) -> str | None:
        """Say why the acknowledgement cannot be part of this attempt's checkpoint (R16)."""
        entry = event.entry
        if entry.origin != self.id or entry.failed:
            return f"acknowledged the state of checkpoint {entry.origin}"
        answers = self.regions.get(event.region)
        others = answers.acks.items() if answers is not None else ()
        for member, other in others:
            if member != event.member and (
                twice := {o.name for o in other.operators} & {o.name for o in entry.operators}
            ):
                return (
                    f"two tasks, {member!r} and {event.member!r}, acknowledged the operators "
                    f"{', '.join(sorted(twice))}: the rows of a region must arrive in one task"
                )
        return None

    def acked(self, event: Acked) -> list[ReleaseSegments]:
        """Store an acknowledgement, or say what is to be released of it (R3)."""
        answers = self._answers(event.region)
        stored = answers.acks.get(event.member)
        if stored is not None or event.member in answers.causes:
            return self._refused(event.region, stored, event.entry)
        answers.silent.discard(event.member)
        answers.acks[event.member] = event.entry
        return []

    def declined(self, event: Declined) -> list[ReleaseSegments]:
        """Store a decline, or say what is to be released of it."""
        answers = self._answers(event.region)
        if event.member in answers.acks:  # An acknowledgement is durable (R7).
            return self._refused_rows(event)
        answers.silent.discard(event.member)
        answers.task = event.task if not answers.causes or answers.task == event.task else None
        answers.problem = answers.problem or event.problem
        answers.causes.setdefault(event.member, event.cause)
        if answers.in_flight:
            return self._refused_rows(event)
        answers.in_flight = tuple(event.in_flight)
        answers.unsaved |= event.had_rows and not event.in_flight
        return []

    def refuse(self, event: Acked | Declined) -> list[ReleaseSegments]:
        """Say what is to be released of an answer that came after the freeze (R4)."""
        if isinstance(event, Declined):
            return self._refused_rows(event)
        answers = self.regions.get(event.region)
        stored = answers.acks.get(event.member) if answers else None
        return self._refused(event.region, stored, event.entry)

    def freeze(self, cause: str) -> list[ReleaseSegments]:
        """Decline for everybody who is silent, and release the peers of failed members (R4, R6)."""
        for region in self.owed:
            answers = self._answers(region)
            if not answers.acks and not answers.causes and not answers.silent:
                answers.silent.add("")  # No task of it ever reported.
        released = []
        for region, answers in self.regions.items():
            if answers.silent:
                answers.causes.update(dict.fromkeys(sorted(answers.silent), cause))
                answers.silent.clear()
                answers.unsaved = True
                answers.task = None
            if answers.causes and answers.acks:
                released += [
                    ReleaseSegments(attempt=self.id, region=region, entry=entry)
                    for entry in answers.acks.values()
                ]
        self.frozen = self.failed()
        return released

    def _answers(self, region: str) -> RegionAnswers:
        answers = self.regions.get(region)
        if answers is None:
            answers = self.regions[region] = RegionAnswers()
        return answers

    def _refused(
        self, region: str, stored: RegionEntry | None, entry: RegionEntry
    ) -> list[ReleaseSegments]:
        if stored == entry:
            return []
        return self._release(region, entry=entry)

    def _refused_rows(self, event: Declined) -> list[ReleaseSegments]:
        return self._release(event.region, in_flight=tuple(event.in_flight))

    def _release(
        self,
        region: str,
        *,
        entry: RegionEntry | None = None,
        in_flight: Sequence[InFlight] = (),
    ) -> list[ReleaseSegments]:
        """Release an answer, unless a stored one refers to some segment of it too.

        Then what it alone wrote goes when the attempt's id is not retained any more.
        """
        refused = segments(entry, in_flight)
        answers = self.regions.get(region)
        if not refused or (answers is not None and refused & answers.segments()):
            return []
        return [ReleaseSegments(attempt=self.id, region=region, entry=entry, in_flight=in_flight)]
