"""The events that a `CheckpointCoordinator` takes. Times are milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast._core import InFlight, RegionEntry
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator.actions import CheckpointKind

#: The batch of the checkpoint of empty states that precedes every batch (R26).
INITIAL_BATCH = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The driver is up.

    Without a restored checkpoint, one of empty states is published (R26). Otherwise the actions
    after its publication are repeated (R74).
    """

    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    """A batch is to be run and checkpointed.

    - `batch_id`: Spark's number of the batch. A final checkpoint or savepoint may repeat that of
      the latest checkpoint: no row is new then.
    - `kind`: ``final`` when all sources are exhausted or the query stops.
    - `properties`: for the metadata.
    - `end_of_data`: for a final checkpoint: the sources are exhausted, so every region flushes
      (R61). False if the pipeline only stops: regions without pending rows keep their state
      unchanged.
    - `global_only`: no region may fail, because in this batch rows of different regions met.
    - `optional`: for a final checkpoint: the query continues if it does not complete in time.
    """

    batch_id: int
    kind: CheckpointKind
    now_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)
    end_of_data: bool = True
    global_only: bool = False
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSnapshot:
    """An operator coordinator answered `SnapshotCoordinators`.

    - `waiting`: events from before the snapshot, by region, as in `CoordinatorEvents`, for the
      order of the attempt.
    - `takes_back`: the coordinator takes back the events of a region that falls back.
    """

    attempt: int
    operator: str
    data: bytes
    waiting: Mapping[str, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    takes_back: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSnapshotFailed:
    """An operator coordinator raised an exception, or did not answer in time (R35)."""

    attempt: int
    operator: str
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionStarted:
    """A task began with a region: an answer is expected for it."""

    attempt: int
    region: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Acked:
    """A region's snapshot is durable (R3).

    - `events`: events to coordinators, each with the name of its operator.
    - `without_rows`: the region ran because time passed, and had no rows.
    """

    attempt: int
    region: str
    entry: RegionEntry
    events: Sequence[tuple[str, bytes]] = ()
    without_rows: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AckedTogether:
    """Regions whose rows are in one file: all of them count, or none (R84)."""

    attempt: int
    acks: Sequence[Acked]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declined:
    """A region failed (R4), or a rescue stored the rows of a region that is silent.

    - `in_flight`: where *all* rows are stored that the region's source gave it in this batch. The
      first decline that has some counts; later ones are copies of the same rows.
    - `had_rows`: there were such rows. The attempt cannot complete if none of them is stored.
    - `task`: the lost task, if that is the reason. All its regions are one failure (R12).
    - `problem`: the exception, if that is the reason.
    """

    attempt: int
    region: str
    cause: str
    in_flight: Sequence[InFlight] = ()
    had_rows: bool = True
    task: str | None = None
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksEnded:
    """No task of the attempt runs any more; a region that started and has not answered is lost.

    Every region with rows has started or answered. The coordinator takes others for idle, so a
    driver that is not certain sends `TasksFailed`.
    """

    attempt: int
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksFailed:
    """Tasks with unknown regions were lost: abort, or their rows would count as processed."""

    attempt: int
    cause: str
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackSnapshot:
    """An operator coordinator answered `AskFallback`; None: its snapshot is unchanged."""

    attempt: int
    operator: str
    data: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackSnapshotFailed:
    """An operator coordinator has no snapshot that is consistent with the failed regions."""

    attempt: int
    operator: str
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The metadata of `Publish` is durable under its final name."""

    attempt: int
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishFailed:
    """The metadata could not be written, or it is unknown whether it was."""

    attempt: int
    cause: str
    now_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataDropped:
    """The answer to a `DropMetadata` that is not required.

    `ids` are the checkpoints whose metadata is deleted. A restart finds the others, so they and
    their segments are retained, and the next checkpoint asks for them again.
    """

    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeDelivered:
    """A finished region has had the notice, and its sinks the commit, of this checkpoint (R62)."""

    checkpoint: int
    region: str


Event = (
    Start
    | Trigger
    | CoordinatorSnapshot
    | CoordinatorSnapshotFailed
    | RegionStarted
    | Acked
    | AckedTogether
    | Declined
    | TasksEnded
    | TasksFailed
    | FallbackSnapshot
    | FallbackSnapshotFailed
    | Published
    | PublishFailed
    | MetadataDropped
    | NoticeDelivered
)
