"""A coordinator with everything around it that answers at once, for tests of single rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Piece,
    RegionEntry,
    SegmentRef,
    StateEntry,
)
from holdfast.regions.coordinator import (
    Acked,
    Action,
    AskFallback,
    CheckpointCoordinator,
    CoordinatorOptions,
    CoordinatorSnapshot,
    Declined,
    DropMetadata,
    Event,
    FallbackSnapshot,
    MetadataDropped,
    Publish,
    Published,
    RegionStarted,
    RunAttempt,
    SnapshotCoordinators,
    Start,
    TasksEnded,
    Topology,
    Trigger,
)

A = TypeVar("A")

_SERIAL = itertools.count(1)

TOPOLOGY = Topology(pipeline="p", operators=("stats",), coordinators={}, fingerprint=b"layout 1")
WITH_SOURCE = Topology(
    pipeline="p",
    operators=("source", "stats"),
    coordinators={"source": True},
    fingerprint=b"layout 1",
)


def ref() -> SegmentRef:
    """Return a reference that differs from all others."""
    return SegmentRef.from_bytes(next(_SERIAL).to_bytes(8, "little").ljust(44, b"\1"))


def entry(
    region: str,
    origin: int,
    *,
    in_flight: Sequence[InFlight] = (),
    finished: bool = False,
    operator: str = "stats",
    kind: Any = "array",
) -> RegionEntry:
    """Return a region's acknowledgement: one state of one segment of its own."""
    state = StateEntry("sums", kind, "<f8", (4,), pieces=[Piece(ref(), 0, 32)])
    return RegionEntry(
        region,
        origin=origin,
        operators=[OperatorEntry(operator, [state], finished=finished)],
        in_flight=in_flight,
        finished=finished,
    )


def rows(attempt: int, count: int = 10, size: int = 100) -> InFlight:
    """Return stored input of a region."""
    return InFlight(attempt, "source", count, size, ref=ref())


def of(kind: type[A], actions: Iterable[Action]) -> list[A]:
    """Return the actions of one class."""
    return [action for action in actions if isinstance(action, kind)]


def one(kind: type[A], actions: Iterable[Action]) -> A:
    """Return the only action of one class."""
    (found,) = of(kind, actions)
    return found


class Job:
    """One pipeline; `disk` is the metadata that its driver has written and not deleted.

    The driver cannot delete `undeletable` metadata.
    """

    state_kind = "array"

    def __init__(
        self,
        options: CoordinatorOptions | None = None,
        topology: Topology = TOPOLOGY,
        *,
        started: bool = True,
    ) -> None:
        self.options = options or CoordinatorOptions(tolerable_failed_checkpoints=100)
        self.topology = topology
        self.disk: dict[int, CheckpointMetadata] = {}
        self.undeletable: set[int] = set()
        self.now_ms = 1_000
        self.last_id = 0
        self.batch_id = -1
        self.coordinator = CheckpointCoordinator(self.options, topology)
        if started:
            self.settle(self.handle(Start(now_ms=self.now_ms)))

    def restart(self, topology: Topology | None = None) -> list[Action]:
        """Continue with a new coordinator, from the disk."""
        self.topology = topology or self.topology
        newest = max(self.disk, default=None)
        self.coordinator = CheckpointCoordinator(
            self.options,
            self.topology,
            restored=None if newest is None else self.disk[newest],
            retained=list(self.disk.values()),
            last_id=self.last_id,
        )
        return self.settle(self.handle(Start(now_ms=self.now_ms)))

    def handle(self, event: Event) -> list[Action]:
        return self.coordinator.handle(event)

    @property
    def latest(self) -> CheckpointMetadata:
        assert self.coordinator.latest is not None
        return self.coordinator.latest

    def trigger(self, kind: Any = "checkpoint", batch_id: int | None = None) -> list[Action]:
        """Trigger the next batch, or one that is named, and answer for operator coordinators."""
        self.batch_id = self.batch_id + 1 if batch_id is None else batch_id
        event = Trigger(batch_id=self.batch_id, kind=kind, now_ms=self.now_ms)
        return self.settle(self.handle(event))

    def settle(self, actions: list[Action]) -> list[Action]:
        """Answer all questions until none is left; return all actions."""
        done: list[Action] = []
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            done.append(action)
            match action:
                case SnapshotCoordinators():
                    for operator in action.operators:
                        event: Event = CoordinatorSnapshot(
                            attempt=action.attempt, operator=operator, data=b"at the trigger"
                        )
                        queue += self.handle(event)
                case AskFallback():
                    event = FallbackSnapshot(
                        attempt=action.attempt, operator=action.operator, data=b"corrected"
                    )
                    queue += self.handle(event)
                case RunAttempt():
                    self.last_id = action.attempt
                case Publish():
                    self.last_id = max(self.last_id, action.attempt)
                    self.disk[action.attempt] = action.metadata
                    queue += self.handle(Published(attempt=action.attempt, now_ms=self.now_ms))
                case DropMetadata():
                    gone = tuple(id for id in action.ids if id not in self.undeletable)
                    for id in gone:
                        self.disk.pop(id, None)
                    if not action.required:
                        queue += self.handle(MetadataDropped(ids=gone))
        return done

    def start(self, *regions: str) -> None:
        assert self.coordinator.pending is not None
        for region in regions:
            event = RegionStarted(attempt=self.coordinator.pending, region=region)
            assert self.handle(event) == []

    def ack(self, region: str, *, finished: bool = False, operator: str = "stats") -> RegionEntry:
        attempt = self.coordinator.pending
        assert attempt is not None
        kind = self.state_kind
        acked = entry(region, attempt, finished=finished, operator=operator, kind=kind)
        event = Acked(attempt=acked.origin, region=region, entry=acked)
        assert self.handle(event) == []
        return acked

    def decline(
        self,
        region: str,
        cause: str = "boom",
        *,
        in_flight: Sequence[InFlight] | None = None,
        had_rows: bool = True,
        task: str | None = None,
    ) -> list[Action]:
        assert self.coordinator.pending is not None
        stored = [rows(self.coordinator.pending)] if in_flight is None else in_flight
        event = Declined(
            attempt=self.coordinator.pending,
            region=region,
            cause=cause,
            in_flight=stored,
            had_rows=had_rows,
            task=task,
        )
        return self.settle(self.handle(event))

    def fail(self, region: str) -> list[Action]:
        """Decline for a region, and end the attempt unless that has ended it."""
        actions = self.decline(region)
        return actions if self.coordinator.pending is None else actions + self.end()

    def end(self) -> list[Action]:
        assert self.coordinator.pending is not None
        event = TasksEnded(attempt=self.coordinator.pending, now_ms=self.now_ms)
        return self.settle(self.handle(event))

    def batch(
        self,
        healthy: Iterable[str] = (),
        failed: Mapping[str, str] | Iterable[str] = (),
        *,
        kind: Any = "checkpoint",
        again: bool = False,
        finished: Iterable[str] = (),
    ) -> list[Action]:
        """Run a whole batch, the same one again with `again`."""
        actions = self.trigger(kind, self.batch_id if again else None)
        for region in healthy:
            self.ack(region)
        for region in finished:
            self.ack(region, finished=True)
        causes = failed if isinstance(failed, Mapping) else dict.fromkeys(failed, "boom")
        for region, cause in causes.items():
            if self.coordinator.pending is not None:
                actions += self.decline(region, cause)
        if self.coordinator.pending is not None:
            actions += self.end()
        return actions


def regions(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]
