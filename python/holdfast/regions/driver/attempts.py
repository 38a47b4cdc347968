"""Attempts at checkpoints: each action of the coordinator is carried out here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from typing import Final, assert_never

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import OperatorFailedError, RegionalQueryError, StoppedError
from holdfast.regions.base.problem import Problem, in_words
from holdfast.regions.coordinator import (
    INITIAL_BATCH,
    Acked,
    AckedTogether,
    Action,
    AskFallback,
    CheckpointCoordinator,
    CheckpointKind,
    CommitSinks,
    Declined,
    DropMetadata,
    Ended,
    Event,
    FailQuery,
    GiveUp,
    MetadataDropped,
    NoticeDelivered,
    NotifyCoordinator,
    NotifyManagers,
    Publish,
    Published,
    PublishFailed,
    ResetCoordinator,
    ResetRegion,
    Retry,
    RunAttempt,
    SettleEvents,
    SnapshotCoordinators,
    Start,
    Trigger,
)
from holdfast.regions.driver.attempt_log import AttemptLog
from holdfast.regions.driver.attempt_tasks import run_tasks
from holdfast.regions.driver.attempt_watch import AttemptWatch
from holdfast.regions.driver.cleanup import CleanUp
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.driver.owned_output import OwnedOutput
from holdfast.regions.driver.task_runner import TaskRunner
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, EndedAttempt
from holdfast.regions.sinks import CheckpointId

LOG: Final = logging.getLogger(__name__)


class Attempts:
    """Makes attempts, one after the other, from one thread at a time.

    `machine` is not started yet. `properties` are for the metadata of every checkpoint. With
    `on_retire`, operators may put out rows when their region is retired.
    """

    def __init__(
        self,
        machine: CheckpointCoordinator,
        *,
        run: str,
        folders: CheckpointFolders,
        runner: TaskRunner,
        output: OwnedOutput,
        host: CoordinatorHost,
        clock: Clock,
        log: AttemptLog,
        properties: Mapping[str, str],
        on_retire: bool,
    ) -> None:
        self.machine = machine
        self._run = run
        self._folders = folders
        self._runner = runner
        self._output = output
        self._host = host
        self._clock = clock
        self._log = log
        self._properties = properties
        self._on_retire = on_retire
        # Ends of attempts that operators learn from the next order.
        self._ended: list[EndedAttempt] = []
        self._clean_up = CleanUp(folders)
        self._failed = False
        self._recovering = False
        # The coordinator's action if no checkpoint completed.
        self._again: Retry | GiveUp | None = None

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        latest = self.machine.latest
        if latest is None:
            raise RuntimeError("the pipeline was not started")
        return latest

    def start(self) -> None:
        """Publish an empty checkpoint, or repeat the actions after the latest publication."""
        begun_ms = self._clock.now_ms()
        self._recovering = self.machine.latest is not None
        again = self._perform(self.machine.handle(Start(now_ms=begun_ms)), None, begun_ms)
        self._recovering = False
        if again:
            self.until_done(INITIAL_BATCH, "checkpoint", None)
        # Staged output of finished regions is committed by now, and their operators are gone.
        self.note_delivered()

    def require_intact(self) -> None:
        """Raise unless every action so far was carried out."""
        if self._failed:
            raise RegionalQueryError(
                "the pipeline failed before, and may not have published what its last checkpoint "
                "holds: start it again, which does that and goes on from there"
            )

    def until_done(
        self,
        batch_id: int,
        kind: CheckpointKind,
        source: object | None,
        *,
        global_only: bool = False,
        end_of_data: bool = False,
        optional: bool = False,
    ) -> GiveUp | None:
        """Make attempts, with pauses between them, until one completes or they are abandoned."""
        latest = self.machine.latest
        if latest is None or latest.is_global:
            # No time is measured now, since no region grows stale.
            self._clock.adjust()
        while True:
            self.require_intact()
            trigger = Trigger(
                batch_id=batch_id,
                kind=kind,
                now_ms=self._clock.now_ms(),
                properties=self._properties,
                end_of_data=end_of_data,
                global_only=global_only,
                optional=optional,
            )
            again = self._perform(self.machine.handle(trigger), source, trigger.now_ms)
            if not isinstance(again, Retry):
                return again
            self._log.problems.show(self.machine.history[-1].id)
            LOG.info("batch %d is attempted again in %d ms", batch_id, again.pause_ms)
            if not self._clock.pause(again.pause_ms):
                raise StoppedError(batch_id, again.reason)

    def _perform(
        self, actions: Iterable[Action], source: object | None, at_ms: int
    ) -> Retry | GiveUp | None:
        """Carry out actions in order until one fails; the next step, or None after a checkpoint."""
        self._failed, self._again = True, None
        if (attempt := self.machine.pending) is not None:
            # Coordinators and managers learn this id, so no later attempt may have it (R2).
            self._folders.note_attempt(attempt)
        todo = deque(actions)
        try:
            while todo:
                todo.extend(self._execute(todo.popleft(), source, at_ms))
        finally:
            # Includes attempts that ended, even if an action after their end failed.
            self._log.note(self.machine, skipped_splits=self._host.skipped_splits())
        self._failed = False
        return self._again

    def _execute(self, action: Action, source: object | None, at_ms: int) -> Iterable[Action]:
        """Carry out one action; returns the actions after the coordinator's answer."""
        events: Iterable[Event] = ()
        match action:
            case RunAttempt():
                return self._run_attempt(action, source, at_ms)
            case SnapshotCoordinators():
                events = self._host.snapshot(action, new_rows=source is not None)
            case AskFallback():
                events = [self._host.of(action.operator).fallback(action)]
            case Publish():
                events = [self._publish(action)]
            case DropMetadata(required=True):
                for id in action.ids:
                    self._folders.drop(id)
            case DropMetadata():
                gone = self._clean_up.drop_checkpoints(action.ids, self.machine.retained)
                events = [MetadataDropped(ids=gone)]
            case NotifyManagers():
                self._runner.tell_managers(action)
                self._runner.reclaim(list(self.machine.retained))
            case ResetCoordinator():
                self._host.of(action.operator).reset(action)
            case ResetRegion():
                self._host.of(action.operator).reset_region(action)
            case SettleEvents():
                self._host.of(action.operator).settle(action)
            case NotifyCoordinator():
                self._host.of(action.operator).notify(action)
            case CommitSinks():
                self._commit(action)
                self._output.sweep(action.attempt + 1)
            case Ended():
                self._note_end(action)
            case Retry() | GiveUp():
                self._again = action
            case FailQuery():
                if action.problem is None:
                    raise RegionalQueryError(action.error)
                raise OperatorFailedError(action.error) from action.problem.error(action.headline)
            case _:
                assert_never(action)
        return [action for event in events for action in self.machine.handle(event)]

    def _publish(self, action: Publish) -> Event:
        try:
            self._folders.publish(action.metadata)
        except OSError as e:
            cause = in_words(e)
            return PublishFailed(attempt=action.attempt, cause=cause, now_ms=self._clock.now_ms())
        return Published(attempt=action.attempt, now_ms=self._clock.now_ms())

    def _commit(self, action: CommitSinks) -> None:
        checkpoint, entries = CheckpointId.of(self.latest), self.machine.entries
        self._output.commit(checkpoint, action.regions, entries, recovering=self._recovering)

    def _note_end(self, action: Ended) -> None:
        self._host.ended(action.attempt)
        # Without a published attempt there may be no latest checkpoint.
        fallbacks = dict(self.latest.failed) if action.outcome == "regional" else {}
        self._ended.append(EndedAttempt(action.attempt, action.outcome, fallbacks))
        if action.outcome != "aborted":
            failed = self.machine.history[-1].failed
            self._log.completed(action, failed, self.machine.entries)
            # Its output is committed. Its operators learn it with the next batch (R64).
            self.note_delivered(since=action.attempt)

    def close_operators(self) -> None:
        """Close the operators of finished regions, once they know of the checkpoint (R61, R62)."""
        order = ClosingOrder(self._run, self.latest, tuple(self._ended))
        self._ended.clear()
        self._runner.close_operators(order)
        self.note_delivered()

    def note_delivered(self, since: int = 0) -> None:
        """Note that regions that finished in `since` or later know of the latest one (R62)."""
        for region in tuple(self.machine.undelivered):
            if self.machine.entries[region].origin >= since:
                self.machine.handle(NoticeDelivered(checkpoint=self.latest.id, region=region))

    def _run_attempt(
        self, action: RunAttempt, source: object | None, at_ms: int
    ) -> Iterable[Action]:
        """Run the tasks of an attempt, and end those that still run when it is over."""
        found: list[Action] = []
        with closing(self._run_tasks(action, source, at_ms)) as events:
            for event in events:
                found += self.machine.handle(event)
                match event:
                    case Acked():
                        self._host.acked(event.region, event.attempt)
                    case AckedTogether():
                        for ack in event.acks:
                            self._host.acked(ack.region, ack.attempt)
                    case Declined(problem=Problem() as problem):
                        self._log.problems.note(event.region, problem)
                if self.machine.pending != action.attempt:
                    break
        return found

    def _run_tasks(
        self, action: RunAttempt, source: object | None, at_ms: int
    ) -> Generator[Event, None, None]:
        order = AttemptOrder(
            attempt=action.attempt,
            created_ms=at_ms,
            base=self.latest,
            drain=action.kind != "checkpoint",
            end_of_data=action.end_of_data,
            global_required=action.global_required,
            restart=action.restart,
            quarantined=action.quarantined,
            excused=action.excused,
            ended=tuple(self._ended),
            events=self._host.take_events(),
        )
        self._ended.clear()
        self._log.problems.begin()
        retained = [metadata.id for metadata in self.machine.retained]
        watch = AttemptWatch(action, retained, self._log.metrics)
        return run_tasks(
            self._runner, action, order, source, watch, self._clock, on_retire=self._on_retire
        )


def finished_regions(metadata: CheckpointMetadata) -> list[str]:
    """Return the regions of a checkpoint whose data ended and that have no pending rows (R64)."""
    entries = metadata.notable.items()
    return [region for region, entry in entries if entry.finished and not entry.fallbacks]
