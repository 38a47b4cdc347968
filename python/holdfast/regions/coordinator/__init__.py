"""The checkpoint coordinator: pure decisions about attempts, and the gate for events to tasks."""

# ruff: noqa: I001  (a name imported as itself is exported)
from holdfast.regions.coordinator.actions import (
    Action as Action,
    AskFallback as AskFallback,
    CheckpointInfo as CheckpointInfo,
    CheckpointKind as CheckpointKind,
    CommitSinks as CommitSinks,
    CoordinatorEvents as CoordinatorEvents,
    DropMetadata as DropMetadata,
    Ended as Ended,
    FailQuery as FailQuery,
    GiveUp as GiveUp,
    NotifyCoordinator as NotifyCoordinator,
    NotifyManagers as NotifyManagers,
    Outcome as Outcome,
    Publish as Publish,
    ResetCoordinator as ResetCoordinator,
    ResetRegion as ResetRegion,
    Retry as Retry,
    RunAttempt as RunAttempt,
    SettleEvents as SettleEvents,
    SnapshotCoordinators as SnapshotCoordinators,
)
from holdfast.regions.coordinator.event_gate import (
    Deliver as Deliver,
    EventGate as EventGate,
)
from holdfast.regions.coordinator.events import (
    INITIAL_BATCH as INITIAL_BATCH,
    Acked as Acked,
    AckedTogether as AckedTogether,
    CoordinatorSnapshot as CoordinatorSnapshot,
    CoordinatorSnapshotFailed as CoordinatorSnapshotFailed,
    Declined as Declined,
    Event as Event,
    FallbackSnapshot as FallbackSnapshot,
    FallbackSnapshotFailed as FallbackSnapshotFailed,
    MetadataDropped as MetadataDropped,
    NoticeDelivered as NoticeDelivered,
    Published as Published,
    PublishFailed as PublishFailed,
    RegionStarted as RegionStarted,
    Start as Start,
    TasksEnded as TasksEnded,
    TasksFailed as TasksFailed,
    Trigger as Trigger,
)
from holdfast.regions.coordinator.history import (
    FailedRegion as FailedRegion,
    HistoryRecord as HistoryRecord,
)
from holdfast.regions.coordinator.machine import CheckpointCoordinator as CheckpointCoordinator
from holdfast.regions.coordinator.options import (
    MAX_IN_FLIGHT_BYTES as MAX_IN_FLIGHT_BYTES,
    CoordinatorOptions as CoordinatorOptions,
    Staleness as Staleness,
    Topology as Topology,
)
