"""The actions that a `CheckpointCoordinator` asks for.

The driver carries out actions in their order. If one fails that is not best effort, it must not
carry out later ones: the query fails, and a restart finds what is published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast._core import CheckpointMetadata, Owner, RegionEntry, SegmentRef
from holdfast.regions.base.problem import Problem

CheckpointKind = Literal["checkpoint", "savepoint", "final"]
Outcome = Literal["global", "regional", "aborted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointInfo:
    """Regions that took part in a completed checkpoint, and those that fell back.

    Other regions had nothing to do, and the checkpoint covers them, too. Flink's counterpart is
    ``RegionalCheckpointInfo`` (FLIP-600).

    Attributes
    ----------
    took_part : frozenset of str
        Regions whose new state the checkpoint has.
    fallbacks : mapping of str to int
        Origin of the state that the checkpoint has for a failed region.
    """

    checkpoint: int
    took_part: frozenset[str] = frozenset()
    fallbacks: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_global(self) -> bool:
        """True if no region fell back."""
        return not self.fallbacks

    @property
    def oldest(self) -> int:
        """The id up to which the checkpoint covers all regions."""
        return min((self.checkpoint, *self.fallbacks.values()))

    def effective(self, region: str) -> int:
        """Return the id up to which the checkpoint covers a region: its origin if it fell back."""
        return self.fallbacks.get(region, self.checkpoint)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorEvents:
    """Events of a coordinator that are in no other part of a checkpoint.

    - `waiting`: events that the state of a region does not reflect, each with the attempt for which
      it was sent: it precedes the rows of that attempt's batch.
    - `received`: events of regions whose state is in the checkpoint, sent after the coordinator's
      snapshot.
    """

    waiting: Mapping[str, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    received: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetCoordinator:
    """Call ``reset`` of an operator's coordinator: all regions go back to the checkpoint (R33).

    At a start, and if an attempt is aborted after its tasks began: their events are lost. `regions`
    are those of the checkpoint whose data has not ended.
    """

    operator: str
    snapshot: bytes | None
    events: CoordinatorEvents = field(default_factory=CoordinatorEvents)
    regions: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class SettleEvents:
    """Call ``handle_event`` with a completed checkpoint's events; `regions` as in a reset."""

    operator: str
    snapshot: bytes
    events: CoordinatorEvents
    regions: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetRegion:
    """Call ``region_reset`` before the next snapshot: the region restarts at its origin (R33)."""

    operator: str
    region: str
    origin: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotCoordinators:
    """Call ``checkpoint`` of these operators' coordinators (R31), before any task runs (R1)."""

    attempt: int
    operators: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAttempt:
    """Run the batch.

    - `global_required`: a decline aborts the attempt, so a region that fails stores no rows.
    - `restart`: regions past their staleness bound: give them a fresh instance at their origin
      (R22).
    - `owed`: regions that must run and answer even without new rows, with their entries: those with
      in-flight data, that failed, that finished and have not learnt of their commit (R62), and for
      a final checkpoint every region that has not finished (R61).
    - `quarantined`: regions that store their rows, and run no operator (R27).
    - `excused`: regions whose failure aborts no attempt, so they store their rows also if it has to
      be global.
    - `new_rows`: False if the latest checkpoint covers the batch: only pending rows are processed.
    - `end_of_data`: no row will follow: after their pending rows, the regions flush (R61).
    - `retiring`: regions to retire, with their entries, unless they have rows in this batch (R66).
    - `woken`: those of `owed` that have no rows unless this batch has some, and milliseconds by
      which their watermark moves then (R69).
    - `finished`: regions that have finished, and in which checkpoint. Rows for one of them are an
      error of the query: their operators never run again (R60).
    """

    attempt: int
    batch_id: int
    kind: CheckpointKind
    global_required: bool
    restart: frozenset[str]
    owed: Mapping[str, RegionEntry]
    retiring: Mapping[str, RegionEntry]
    woken: Mapping[str, int]
    quarantined: frozenset[str]
    excused: frozenset[str]
    new_rows: bool
    end_of_data: bool
    finished: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskFallback:
    """Call ``checkpoint_fallback`` of an operator's coordinator (R32)."""

    attempt: int
    operator: str
    origins: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Publish:
    """Write the metadata atomically; answer with `Published` or `PublishFailed` (R18)."""

    attempt: int
    metadata: CheckpointMetadata


@dataclass(frozen=True, kw_only=True, slots=True)
class DropMetadata:
    """Delete the metadata of these checkpoints, if it exists.

    - `required`: a restart must not find them. If False, they are only too old: answer with
      `MetadataDropped`, which names the deleted ones.
    """

    ids: tuple[int, ...]
    required: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class NotifyManagers:
    """Tell every manager of segments. Best effort: each message is absolute (R43).

    - `message`: the method of `holdfast.SnapshotManager`. A global checkpoint also completes
      partially if idle regions keep the state of an earlier one. Managers derive subsumed segments
      from the view, per owner (R44).
    - `fallbacks`: origins that differ from ``checkpoint``; empty unless it completed partially.
    - `retained`: the same for every retained checkpoint.
    - `decided`: the last attempt that is decided.
    - `released`: segments that refused answers wrote for ``checkpoint``, which does not hold them
      (R3). By their owners and ids, they would live as long as it, so a manager releases them
      before it takes in the rest. It ignores segments that are unknown or of an earlier attempt.
    """

    message: Literal["completed", "partially_completed", "aborted"]
    checkpoint: int
    fallbacks: Mapping[Owner, int]
    retained: Mapping[int, Mapping[Owner, int]]
    decided: int
    released: Mapping[Owner, Sequence[SegmentRef]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotifyCoordinator:
    """Tell an operator's coordinator how the attempt ended (R34, R42).

    - `effective`: per region of the checkpoint the id up to which it is covered: the origin of a
      failed region, else the checkpoint's id. Empty after an abort.
    - `took_part`: regions whose new state the checkpoint has.
    """

    operator: str
    kind: Literal["completed", "aborted"]
    attempt: int
    effective: Mapping[str, int]
    took_part: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitSinks:
    """Commit what these regions staged for the checkpoint; repeated after a restart (R80, R81)."""

    attempt: int
    regions: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The attempt is over; the driver stops tasks of it that still run.

    Regions learn it from the next order, see `protocol.orders.EndedAttempt` (R40 to R42). `retired`
    are regions that are dropped with the checkpoint (R66).
    """

    attempt: int
    outcome: Outcome
    cause: str = ""
    retired: Collection[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Trigger the same batch again after a pause in milliseconds (R24); it gets a new id."""

    batch_id: int
    kind: CheckpointKind
    reason: str
    pause_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    """Continue without an optional checkpoint that did not complete in time."""

    attempts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FailQuery:
    """Stop the query with this error; the coordinator takes no further trigger.

    - `headline`: failure and place, if known. It begins and ends `error`, too.
    - `problem`: the exception of the region to blame, if any.
    """

    error: str
    headline: str = ""
    problem: Problem | None = None


Action = (
    ResetCoordinator
    | ResetRegion
    | SettleEvents
    | SnapshotCoordinators
    | RunAttempt
    | AskFallback
    | Publish
    | DropMetadata
    | NotifyManagers
    | NotifyCoordinator
    | CommitSinks
    | Ended
    | Retry
    | GiveUp
    | FailQuery
)
