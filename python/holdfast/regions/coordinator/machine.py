"""The state machine of checkpoints: events in, actions out."""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.coordinator import (
    another_attempt,
    evaluation,
    event_record,
    planning,
    settlement,
)
from holdfast.regions.coordinator.actions import (
    Action,
    AskFallback,
    CommitSinks,
    DropMetadata,
    Ended,
    FailQuery,
    Outcome,
    Publish,
    ResetCoordinator,
    ResetRegion,
    SettleEvents,
    SnapshotCoordinators,
)
from holdfast.regions.coordinator.attempt import PendingAttempt, Phase
from holdfast.regions.coordinator.evaluation import Reason, Rejection
from holdfast.regions.coordinator.events import (
    INITIAL_BATCH,
    Acked,
    AckedTogether,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Declined,
    Event,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    MetadataDropped,
    NoticeDelivered,
    Published,
    PublishFailed,
    RegionStarted,
    Start,
    TasksEnded,
    TasksFailed,
    Trigger,
)
from holdfast.regions.coordinator.history import HistoryRecord
from holdfast.regions.coordinator.idle import WATERMARK_PROPERTY, IdleTime
from holdfast.regions.coordinator.limits import Limits
from holdfast.regions.coordinator.operator_coordinator import MAX_EVENTS_BYTES
from holdfast.regions.coordinator.options import CoordinatorOptions, Topology
from holdfast.regions.coordinator.quarantine import Quarantine
from holdfast.regions.coordinator.regions import Regions
from holdfast.regions.coordinator.retention import Retention
from holdfast.regions.coordinator.settlement import Unsettled
from holdfast.regions.coordinator.wakes import DueOf, Wakes


class CheckpointCoordinator:
    """Decides about checkpoints; a driver feeds it events and executes its actions in order.

    It knows no Spark, no clock, no storage and no thread: the same events give the same actions.
    Feed events one at a time. Its decisions follow Apache Flink's checkpoint coordinator with
    FLIP-27 (operator coordinators), FLIP-147 (finished sources) and FLIP-600 (regional
    checkpoints); rule numbers are those of the project's checkpoint semantics.

    - `restored`: the checkpoint to continue from; None at the first start.
    - `retained`: every checkpoint whose metadata was found. Those newer than ``restored`` were
      abandoned when the user went back, and are dropped at `Start`.
    - `last_id`: the largest id ever used, also by attempts without metadata (R2).
    - `changed`: regions whose state is declared in another form than in the restored checkpoint.
      They run in the next checkpoint, which must be global (R78).
    - `due_of`: returns when the first timer of a region is due, if operators may have timers.
    - `latest`: the newest completed checkpoint. `entries`: its regions.
    - `history`: the newest ended attempts, oldest first.
    - `undelivered`: regions that finished and have not learnt of their last commit (R62).

    Raises a ValueError if checkpoints are retained, but none of them is restored.
    """

    def __init__(
        self,
        options: CoordinatorOptions,
        topology: Topology,
        *,
        restored: CheckpointMetadata | None = None,
        retained: Sequence[CheckpointMetadata] = (),
        last_id: int = 0,
        changed: Collection[str] = (),
        due_of: DueOf | None = None,
    ) -> None:
        self._limits = Limits(options=options)
        known = {metadata.id: metadata for metadata in retained}
        if restored is not None:
            known[restored.id] = restored
            self._limits.completed(restored)
        elif known:
            raise ValueError(
                f"checkpoints {sorted(known)} are retained: expected one of them to be restored"
            )
        self._options = options
        self._topology = topology
        self._retention = Retention(topology.pipeline, options)
        if restored is not None:
            self._retention.restore(restored.id, known)
        self.latest = restored
        self.entries = Regions(restored)
        # The regions of the next checkpoint if nothing happens before it.
        self._base: Regions | None = None
        if restored is not None:
            self._base = self.entries.following(restored, self.entries)
        self.history: collections.deque[HistoryRecord] = collections.deque(
            maxlen=options.history_length
        )
        self._last_id = max(last_id, *known, 0)
        # Regions to run in the first checkpoint of a layout; None if it has completed.
        self._new_layout: frozenset[str] | None = None
        if restored is not None and (changed or restored.topology != topology.fingerprint):
            self._new_layout = frozenset(changed)
        notable = self._known.notable
        self._quarantine = Quarantine.at_start(notable) if options.quarantines else Quarantine()
        # A restart does not know which notices arrived, so it repeats them (R62).
        self.undelivered = {name for name, e in notable.items() if e.finished and not e.fallbacks}
        self._wakes = Wakes(due_of, self._known.items(), at_once=options.bounds.woken_at_once)
        # Failed regions of the latest checkpoint, not yet told to operators' coordinators.
        self._restarting: tuple[str, ...] = ()
        # The attempt under way, the notices of the latest checkpoint while the driver drops
        # metadata, or the end of the query.
        self._at: PendingAttempt | Unsettled | FailQuery | None = None

    @property
    def pending(self) -> int | None:
        """The id of the attempt under way."""
        return self._at.id if isinstance(self._at, PendingAttempt) else None

    @property
    def retained(self) -> tuple[CheckpointMetadata, ...]:
        """The retained checkpoints, oldest first (R70), with those that cannot be dropped (R76)."""
        return self._retention.checkpoints

    @property
    def quarantined(self) -> frozenset[str]:
        """The regions in quarantine (R27)."""
        return self._quarantine.regions

    @property
    def resting(self) -> frozenset[str]:
        """The regions in quarantine that the next attempt does not run (R29)."""
        return self._quarantine.resting

    @property
    def _known(self) -> Regions:
        return Regions() if self._base is None else self._base

    def replay(self, region: str) -> None:
        """Let the next attempt run a region; ValueError if it is not in quarantine (R29)."""
        self._quarantine = self._quarantine.with_replay(region)

    def handle(self, event: Event) -> list[Action]:
        """Return the actions that follow from an event, in their order; late answers are no error.

        Raises a RuntimeError at a `Start` or `Trigger` while an attempt is under way, or after the
        query failed, and a ValueError at a `Trigger` of a batch older than the latest checkpoint.
        """
        match event:
            case Start():
                return self._start(event)
            case Trigger():
                return self._trigger(event)
            case NoticeDelivered():
                return self._notice_delivered(event)
            case MetadataDropped():
                return self._metadata_dropped(event)
        attempt = self._at
        if not isinstance(attempt, PendingAttempt) or attempt.id != event.attempt:
            return []
        match event:
            case RegionStarted():
                if attempt.phase is Phase.RUNNING:
                    attempt.started(event.region)
                return []
            case Acked() | Declined():
                return self._answer(attempt, event)
            case AckedTogether():
                return self._answer_together(attempt, event)
            case CoordinatorSnapshot() | FallbackSnapshot():
                return self._snapshot(attempt, event)
            case CoordinatorSnapshotFailed() | FallbackSnapshotFailed():
                return self._snapshot_failed(attempt, event)
            case TasksEnded() | TasksFailed():
                return self._tasks_ended(attempt, event)
            case Published() | PublishFailed():
                return self._publication(attempt, event)

    # --- trigger --------------------------------------------------------------------------------

    def _start(self, event: Start) -> list[Action]:
        self._require_idle()
        actions = self._reset_coordinators()
        if self.latest is None:
            initial = Trigger(batch_id=INITIAL_BATCH, kind="checkpoint", now_ms=event.now_ms)
            return actions + self._begin(initial)
        # Includes the last rows of retired regions.
        committed = frozenset(
            region
            for region, entry in self.entries.changed.items()
            if entry.origin == self.latest.id and not entry.failed
        )
        # Attempts open when the last driver died are decided: they left no metadata.
        decided = self._last_id
        unsettled = Unsettled(self.latest.id, decided, released={}, ended=None)
        return actions + self._after_publication(unsettled, committed)

    def _reset_coordinators(self) -> list[Action]:
        """Go back to the latest checkpoint with all regions: later work is lost (R33)."""
        snapshots = {} if self.latest is None else self.latest.coordinators
        regions = self._running()
        return [
            ResetCoordinator(
                operator=operator,
                snapshot=snapshots.get(operator),
                events=event_record.decode(snapshots, operator),
                regions=regions,
            )
            for operator in self._topology.coordinators
        ]

    def _running(self) -> frozenset[str]:
        """Return the regions whose data has not ended, for coordinators."""
        return self._known.running if self._topology.coordinators else frozenset()

    def _trigger(self, event: Trigger) -> list[Action]:
        self._require_idle()
        if self.latest is not None and event.batch_id <= self.latest.batch_id:
            if event.kind == "checkpoint":
                return []  # The latest checkpoint covers the batch (R74).
            if event.batch_id < self.latest.batch_id:
                raise ValueError(
                    f"batch {event.batch_id} is older than batch {self.latest.batch_id} of "
                    f"checkpoint {self.latest.id}: expected that one or a newer one"
                )
        return self._begin(event)

    def _require_idle(self) -> None:
        match self._at:
            case FailQuery(error=error):
                raise RuntimeError(f"the query failed: {error}")
            case PendingAttempt(id=id):
                raise RuntimeError(f"checkpoint attempt {id} is under way")
            case Unsettled():
                raise RuntimeError("metadata is being dropped: expected MetadataDropped")

    def _begin(self, event: Trigger) -> list[Action]:
        """Open an attempt: operator coordinators first, then the tasks (R1)."""
        operators = self._topology.coordinators
        self._last_id += 1
        now_ms, retire_ms = event.now_ms, self._options.retire_idle_ms
        idle = None if retire_ms is None else IdleTime.at(self.latest, now_ms, retire_ms)
        idle_ms, of = self._topology.watermark_idle_ms, WATERMARK_PROPERTY
        resting = None if idle_ms is None else IdleTime.at(self.latest, now_ms, idle_ms, of)
        attempt = self._at = planning.open_attempt(
            self._last_id,
            event,
            base=self._known,
            must_run=self.undelivered | (self._new_layout or frozenset()),
            quarantine=self._quarantine,
            limits=self._limits,
            layout_changed=self._new_layout is not None,
            idle=idle,
            watermark_idle=resting,
            due=self._wakes.at(now_ms, without=self._quarantine.resting),
            options=self._options,
            topology=self._topology,
        )
        actions: list[Action] = [
            ResetRegion(operator=operator, region=region, origin=self._origin(region))
            for region in self._restarting
            for operator in operators
        ]
        self._restarting = ()
        if not operators:
            return actions + self._run(attempt)
        attempt.phase = Phase.SNAPSHOT
        attempt.awaited = set(operators)
        return [*actions, SnapshotCoordinators(attempt=attempt.id, operators=tuple(operators))]

    def _run(self, attempt: PendingAttempt) -> list[Action]:
        attempt.phase = Phase.RUNNING
        if attempt.trigger.batch_id == INITIAL_BATCH:
            return self._evaluate(attempt)
        restarts = self._options.restart_finished
        return [planning.run(attempt, self.latest, self._known, restart_finished=restarts)]

    def _origin(self, region: str) -> int:
        """Return the origin of the state a region restarts from; unknown regions have none."""
        entry = self._known.get(region)
        if entry is not None:
            return entry.origin
        return 0 if self.latest is None else self.latest.id

    # --- answers --------------------------------------------------------------------------------

    def _answer(self, attempt: PendingAttempt, event: Acked | Declined) -> list[Action]:
        if attempt.phase is not Phase.RUNNING:
            attempt.refuse(event)
            return []
        if isinstance(event, Acked):
            entry = event.entry
            stored = event.region in attempt.quarantined and in_quarantine(entry)
            expected = self._origin(event.region) if stored else attempt.id
            if entry.origin == expected and not entry.failed:  # R16, R27
                attempt.acked(event)
                return []
            attempt.refuse(event)
            wrong = f"acknowledged the state of checkpoint {entry.origin}"
            event = Declined(attempt=event.attempt, region=event.region, cause=wrong)
        attempt.declined(event)
        if attempt.fail_fast and event.region in attempt.counted():  # R8
            detail = f"{event.region!r}: {event.cause}"
            to_blame = frozenset((event.region,))
            rejection = Rejection(reason=Reason.DECLINED, detail=detail, regions=to_blame)
            return self._abort(attempt, rejection)
        return []

    def _answer_together(self, attempt: PendingAttempt, event: AckedTogether) -> list[Action]:
        if attempt.phase is Phase.RUNNING:
            attempt.acked_together(event)
        else:
            for ack in event.acks:
                attempt.refuse(ack)
        return []

    def _notice_delivered(self, event: NoticeDelivered) -> list[Action]:
        entry = self._known.get(event.region)
        # A notice of an older checkpoint does not concern the finish.
        if entry is not None and entry.finished and event.checkpoint >= entry.origin:
            self.undelivered.discard(event.region)
        return []

    def _snapshot(
        self, attempt: PendingAttempt, event: CoordinatorSnapshot | FallbackSnapshot
    ) -> list[Action]:
        expected = Phase.SNAPSHOT if isinstance(event, CoordinatorSnapshot) else Phase.FALLBACK
        if attempt.phase is not expected or event.operator not in attempt.awaited:
            return []
        attempt.awaited.discard(event.operator)
        if event.data is not None:
            attempt.snapshots[event.operator] = event.data
        if isinstance(event, CoordinatorSnapshot):
            attempt.waiting[event.operator] = event.waiting
            if event.takes_back:
                attempt.taking_back.add(event.operator)
        if attempt.awaited:
            return []
        return self._run(attempt) if expected is Phase.SNAPSHOT else self._publish(attempt)

    def _snapshot_failed(
        self, attempt: PendingAttempt, event: CoordinatorSnapshotFailed | FallbackSnapshotFailed
    ) -> list[Action]:
        at_trigger = isinstance(event, CoordinatorSnapshotFailed)
        if attempt.phase is not (Phase.SNAPSHOT if at_trigger else Phase.FALLBACK):
            return []
        detail = f"{event.operator!r}: {event.cause}"
        return self._abort(attempt, Rejection(reason=Reason.COORDINATOR, detail=detail))  # R35

    def _tasks_ended(
        self, attempt: PendingAttempt, event: TasksEnded | TasksFailed
    ) -> list[Action]:
        if attempt.phase is not Phase.RUNNING:
            return []
        attempt.now_ms = event.now_ms
        attempt.freeze("lost")  # R4
        if isinstance(event, TasksFailed):
            return self._abort(attempt, Rejection(reason=Reason.TASKS, detail=event.cause))
        return self._evaluate(attempt)

    # --- evaluation and publication -------------------------------------------------------------

    def _evaluate(self, attempt: PendingAttempt) -> list[Action]:
        rejection = evaluation.evaluate(
            attempt,
            base=self._base,
            base_id=0 if self.latest is None else self.latest.id,
            must_ack=self.undelivered,
            options=self._options,
            topology=self._topology,
        )
        rejection = rejection or self._too_many_events(attempt)
        if rejection is not None:
            return self._abort(attempt, rejection)
        failed = attempt.failed()
        if not failed or not self._topology.coordinators:
            return self._publish(attempt)
        attempt.phase = Phase.FALLBACK
        attempt.awaited = set(self._topology.coordinators)
        origins = {region: attempt.composed[region].origin for region in failed}
        return [  # R17
            AskFallback(attempt=attempt.id, operator=operator, origins=origins)
            for operator in self._topology.coordinators
        ]

    def _too_many_events(self, attempt: PendingAttempt) -> Rejection | None:
        """Check that the metadata has room for events to coordinators (R36)."""
        for operator in self._topology.coordinators:
            size = sum(len(event) for _, event in attempt.events(operator).received)
            if size > MAX_EVENTS_BYTES:
                detail = (
                    f"{operator!r}: regions sent it {size} bytes of events in one checkpoint, and "
                    f"{MAX_EVENTS_BYTES} are allowed; put out rows instead"
                )
                return Rejection(reason=Reason.COORDINATOR, detail=detail)
        return None

    def _publish(self, attempt: PendingAttempt) -> list[Action]:
        attempt.phase = Phase.PUBLISHING
        metadata = evaluation.metadata_of(attempt, self.latest, self._limits, self._topology)
        attempt.metadata = metadata
        return [Publish(attempt=attempt.id, metadata=metadata)]

    def _publication(
        self, attempt: PendingAttempt, event: Published | PublishFailed
    ) -> list[Action]:
        metadata = attempt.metadata
        if attempt.phase is not Phase.PUBLISHING or metadata is None:
            return []
        attempt.now_ms = event.now_ms
        if isinstance(event, PublishFailed):
            rejection = Rejection(reason=Reason.PUBLICATION, detail=event.cause)
            # It may have been written, but a restart must not find it.
            return [DropMetadata(ids=(attempt.id,)), *self._abort(attempt, rejection)]
        return self._completed(attempt, metadata)

    def _completed(self, attempt: PendingAttempt, metadata: CheckpointMetadata) -> list[Action]:
        entries = attempt.composed
        failed = attempt.failed().keys()
        fallbacks = {region: entries[region].origin for region in failed if entries[region].failed}
        outcome: Outcome = "regional" if fallbacks else "global"
        self._at = self._new_layout = None
        self._limits.completed(metadata)
        self._retention.add(metadata)
        self.undelivered = {
            region
            for region in attempt.regions.keys() | self.undelivered
            if (entry := entries.get(region)) is not None and entry.finished and not entry.fallbacks
        }
        self.latest, self.entries = metadata, entries
        self._base = entries.following(metadata, attempt.retiring)
        self.history.append(HistoryRecord.of(attempt, outcome))
        self._wakes.completed(attempt.regions, self._base)
        healthy = frozenset(attempt.regions.keys() - failed)
        if self._options.quarantines:
            self._quarantine = self._quarantine.following(attempt.regions, entries)
        self._restarting = tuple(fallbacks)
        ended = Ended(attempt=attempt.id, outcome=outcome, retired=attempt.retired())
        regions = self._running()
        settled = tuple(
            SettleEvents(
                operator=operator,
                snapshot=attempt.snapshots[operator],
                events=attempt.events(operator),
                regions=regions,
            )
            for operator in self._topology.coordinators
        )
        unsettled = Unsettled(metadata.id, attempt.id, attempt.released(), ended, settled)
        return self._after_publication(unsettled, healthy)

    def _after_publication(self, unsettled: Unsettled, committed: frozenset[str]) -> list[Action]:
        """Commit output, then drop metadata. All of it may be repeated after a restart (R74)."""
        actions: list[Action] = [CommitSinks(attempt=unsettled.checkpoint, regions=committed)]
        if given_up := self._retention.given_up:  # A restart must not find them.
            actions.append(DropMetadata(ids=given_up))
            self._retention.given_up = ()
        if subsumed := self._retention.subsumed():
            self._at = unsettled
            return [*actions, DropMetadata(ids=subsumed, required=False)]
        return [*actions, *self._settle(unsettled)]

    def _metadata_dropped(self, event: MetadataDropped) -> list[Action]:
        unsettled = self._at
        if not isinstance(unsettled, Unsettled):
            return []
        self._at = None
        self._retention.let_go(event.ids)
        return self._settle(unsettled)

    def _settle(self, unsettled: Unsettled) -> list[Action]:
        # No other message names the segments of refused answers.
        tell = self._retention.must_tell(unsettled.checkpoint, self.entries)
        if tell := tell or bool(unsettled.released):
            self._retention.untold = 0
        return list(
            settlement.after_drop(
                unsettled,
                self._known,
                self._retention,
                self._topology.coordinators,
                tell_managers=tell,
            )
        )

    # --- the other end --------------------------------------------------------------------------

    def _abort(self, attempt: PendingAttempt, rejection: Rejection) -> list[Action]:
        """End the attempt without a checkpoint."""
        self._at = None
        self._quarantine = self._quarantine.without_replay(attempt.failed())
        self._retention.untold = 0
        cause = str(rejection)
        self.history.append(HistoryRecord.of(attempt, "aborted", cause))
        operators = self._topology.coordinators
        following = another_attempt.choose(
            attempt,
            rejection,
            base=self._known,
            origin=self._origin,
            limits=self._limits,
            options=self._options,
        )
        if isinstance(following, FailQuery):
            self._at = following
        return [
            *settlement.after_abort(attempt.id, self._retention, operators),
            *(self._reset_coordinators() if attempt.phase is not Phase.SNAPSHOT else ()),
            Ended(attempt=attempt.id, outcome="aborted", cause=cause),
            following,
        ]
