"""The driver of a pipeline: carries out what the coordinator decides."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, assert_never

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import (
    OperatorFailedError,
    RegionalQueryError,
    RegionFinishedError,
    RegionInTwoTasksError,
    SavepointError,
    StoppedError,
)
from holdfast.regions.base.folders import (
    IDENTITY_PROPERTY,
    OUTPUT_PROPERTY,
    PIPELINE_PROPERTY,
    RESTORED_PROPERTIES,
    CheckpointFolders,
)
from holdfast.regions.base.problem import Problem
from holdfast.regions.checkpoint.copy import require_free, write_image
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout
from holdfast.regions.checkpoint.opening import open_folder
from holdfast.regions.coordinator import (
    INITIAL_BATCH,
    Acked,
    Action,
    AskFallback,
    CheckpointCoordinator,
    CommitSinks,
    CoordinatorOptions,
    Declined,
    DropMetadata,
    Ended,
    Event,
    FailQuery,
    GiveUp,
    HistoryRecord,
    NoticeDelivered,
    NotifyCoordinator,
    NotifyManagers,
    Publish,
    Published,
    PublishFailed,
    RegionStarted,
    ResetCoordinator,
    ResetRegion,
    Retry,
    RunAttempt,
    SnapshotCoordinators,
    Start,
    TasksEnded,
    TasksFailed,
    Topology,
    Trigger,
)
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, EndedAttempt, PipelinePlan
from holdfast.regions.sinks import Publisher

LOG: Final = logging.getLogger(__name__)

Kind = Literal["checkpoint", "savepoint", "final"]


class TasksLostError(RuntimeError):
    """Tasks of an attempt ended, or were ended, without an answer for all of their regions.

    Parameters
    ----------
    cause : str
        Why.
    partition : int, optional
        Partition of the task that was to blame, if one was and it is known. Others may have been
        ended along with it.
    """

    def __init__(self, cause: str, *, partition: int | None = None) -> None:
        super().__init__(cause)
        self.partition = partition


class TaskRunner(Protocol):
    """Runs region tasks somewhere, and reaches the managers there."""

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[answers.Answer, None, None]:
        """Run the tasks of an attempt; yields answers while they run. Closing it ends the tasks.

        Parameters
        ----------
        order : AttemptOrder
            What every task does.
        source : object or None
            Rows of the batch, in the runner's own form; None: there are none.
        owed : sequence of str
            Regions to run without rows of this batch.

        Raises
        ------
        TasksLostError
            After the last answer, if some task came to no end of its own.
        """

    def close_operators(self, order: ClosingOrder) -> None:
        """Notify the operators that are kept between attempts, and close them; best effort."""

    def tell_managers(self, message: NotifyManagers) -> None:
        """Pass a message on to every manager; best effort."""

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Begin with these checkpoints, and delete files that none of them needs."""

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """Delete files of managers that are gone, if no checkpoint needs them; best effort.

        Parameters
        ----------
        retained : sequence of CheckpointMetadata
            All retained checkpoints. No attempt is under way.
        """

    def close(self) -> None:
        """Let go of what the runner holds."""


class PipelineDriver:
    """Runs one attempt after the other, from one thread at a time.

    Parameters
    ----------
    plan : PipelinePlan
        The pipeline.
    topology : Topology
        What the coordinator knows of it.
    options : CoordinatorOptions
        Limits of the coordinator.
    folders : CheckpointFolders
        Where the checkpoint lies.
    runner : TaskRunner
        Where tasks run.
    publisher : Publisher
        The driver's half of the sink.
    coordinators : CoordinatorHost
        Those of operators; `topology` names the same ones.
    clock : Clock, optional
        What time it is, and how long a pause takes.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        topology: Topology,
        options: CoordinatorOptions,
        folders: CheckpointFolders,
        runner: TaskRunner,
        publisher: Publisher,
        coordinators: CoordinatorHost,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._options = options
        self._folders = folders
        self._runner = runner
        self._publisher = publisher
        self._coordinators = coordinators
        self._clock = clock or Clock()
        self._coordinator: CheckpointCoordinator | None = None
        self._properties: dict[str, str] = {
            PIPELINE_PROPERTY: plan.pipeline,
            OUTPUT_PROPERTY: plan.sink.location,
            LAYOUT_PROPERTY: Layout.of(plan).to_json(),
        }
        self._ended: list[EndedAttempt] = []
        # Of the attempt under way, by region; and those whose trace is in the log.
        self._problems: dict[str, Problem] = {}
        self._shown: set[tuple[str, str, str, str]] = set()
        self._saved = False
        self._stopped = False
        self._failed = False
        # What the coordinator wants where no checkpoint completed.
        self._again: Retry | GiveUp | None = None
        self._lock = threading.Lock()

    # --- life -----------------------------------------------------------------------------------

    def start(self, *, checkpoint_id: int | None = None, verify: bool = True) -> None:
        """Restore the latest checkpoint, or begin with an empty one (R26).

        Parameters
        ----------
        checkpoint_id : int, optional
            Go back to this retained checkpoint: newer ones and their output are given up.
        verify : bool, default True
            Read everything that the checkpoint needs before anything else.

        Raises
        ------
        DamagedCheckpointError
            If the checkpoint, or a segment it needs, is damaged (R75).
        FileNotFoundError
            If there is no checkpoint `checkpoint_id`.
        RegionalQueryError
            If the empty one cannot be published.
        ValueError
            If the checkpoint is that of a pipeline with another name or layout.
        """
        retained = open_folder(
            self._folders, self._plan, checkpoint_id=checkpoint_id, verify=verify
        )
        latest = retained[-1] if retained else None
        if latest is not None:
            kept = {key: latest.properties.get(key) for key in RESTORED_PROPERTIES}
            self._properties |= {key: value for key, value in kept.items() if value is not None}
        identity = self._folders.read_identity()
        if identity is not None:
            self._properties[IDENTITY_PROPERTY] = identity
        self._runner.restore(retained)
        self._coordinator = CheckpointCoordinator(
            self._options,
            self._topology,
            restored=latest,
            retained=retained,
            last_id=max(latest.id if latest is not None else 0, self._folders.read_last_attempt()),
        )
        begun_ms = self._clock.now_ms()
        if self._perform(self.coordinator.handle(Start(now_ms=begun_ms)), None, begun_ms):
            self._until_done(INITIAL_BATCH, "checkpoint", None)
        # What they staged is committed by now, and of their operators none is left to be told.
        self._note_delivered(self._finished)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The state machine."""
        if self._coordinator is None:
            raise RuntimeError("the pipeline was not started")
        return self._coordinator

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        latest = self.coordinator.latest
        if latest is None:
            raise RuntimeError("the pipeline was not started")
        return latest

    def history(self) -> Sequence[HistoryRecord]:
        """Return the ended attempts, oldest first."""
        return tuple(self.coordinator.history)

    def run_batch(self, batch_id: int, source: object, *, global_only: bool = False) -> None:
        """Run one batch to a completed checkpoint, in as many attempts as it takes.

        A batch that is done already, because the process ended between the checkpoint and the
        source's own log, runs no operator (R74).

        Parameters
        ----------
        batch_id : int
            Number of the batch; that of the latest checkpoint or the next one.
        source : object
            Its rows, in the runner's form.
        global_only : bool, default False
            No region may fail: in this batch, rows of different regions met.

        Raises
        ------
        StoppedError
            If `interrupt` was called before an attempt completed.
        RegionalQueryError
            If the coordinator gave up; nothing that was completed before is touched.
        """
        with self._lock:
            self._require_unsaved()
            try:
                self._until_done(batch_id, "checkpoint", source, global_only=global_only)
            except StoppedError:
                self._stopped = True
                raise

    def finish(self) -> None:
        """Replay what regions still owe, until a global checkpoint holds everything (R25).

        Raises
        ------
        RegionalQueryError
            If some region keeps failing.
        """
        # What was interrupted was a batch, which is run again after a restart.
        self._clock.resume()
        with self._lock:
            if self._owes:
                self._until_done(self.latest.batch_id, "final", None)

    def interrupt(self) -> None:
        """End a pause between attempts, and the attempts: the pipeline is to stop.

        Without effect on an attempt that is under way.
        """
        self._clock.interrupt()

    def end_of_data(self) -> None:
        """Let every region flush, and hold all as finished in a global checkpoint (R25, R61).

        Raises
        ------
        RegionalQueryError
            If some region keeps failing. No region is finished then.
        """
        with self._lock:
            self._require_unsaved()
            self._require_intact()
            if len(self._finished) < len(self.latest.regions):
                self._until_done(self.latest.batch_id, "final", None, end_of_data=True)
                self._close_operators()

    def stop_with_savepoint(self, path: Path, *, max_file_bytes: int) -> None:
        """Write a savepoint between two batches, after which no batch runs any more (R25).

        Parameters
        ----------
        path : Path
            Folder to create.
        max_file_bytes : int
            Size in bytes at which a merged file is sealed.

        Raises
        ------
        SavepointError
            If some region keeps failing. The pipeline goes on.
        RegionalQueryError
            If the coordinator gave up.
        OSError
            If the savepoint cannot be written. The pipeline goes on.
        """
        require_free(path)
        with self._lock:
            self._require_intact()
            # Of the kind that drains: in the pipeline's own folder, a checkpoint of the kind
            # "savepoint" would stay for ever.
            given_up = None
            if self._owes:
                given_up = self._until_done(self.latest.batch_id, "final", None, optional=True)
            if given_up is not None:
                raise SavepointError(path, given_up.attempts, self.history()[-1].cause)
            write_image(
                self._folders,
                self.latest,
                path,
                kind="savepoint",
                pipeline=self._plan.pipeline,
                properties=self._properties,
                max_file_bytes=max_file_bytes,
            )
            self._saved = True

    @property
    def saved(self) -> bool:
        """Whether a savepoint ended the pipeline."""
        return self._saved

    @property
    def stopped(self) -> bool:
        """Whether a batch was given up between two attempts, because the pipeline stops."""
        return self._stopped

    @property
    def _owes(self) -> bool:
        """Whether rows of the stream are in no state yet."""
        return any(entry.failed or entry.in_flight_bytes for entry in self.latest.regions.values())

    @property
    def _finished(self) -> list[str]:
        """Regions whose data has ended."""
        return [region for region, entry in self.latest.regions.items() if entry.finished]

    def _require_unsaved(self) -> None:
        if self._saved:
            raise RegionalQueryError("the pipeline was stopped with a savepoint")

    def _require_intact(self) -> None:
        if self._failed:
            raise RegionalQueryError(
                "the pipeline failed before, and may not have published what its last checkpoint "
                "holds: start it again, which does that and goes on from there"
            )

    # --- attempts -------------------------------------------------------------------------------

    def _until_done(
        self,
        batch_id: int,
        kind: Kind,
        source: object | None,
        *,
        global_only: bool = False,
        end_of_data: bool = False,
        optional: bool = False,
    ) -> GiveUp | None:
        """Make attempts, with pauses between them, until one completes or they are given up."""
        while True:
            self._require_intact()
            trigger = Trigger(
                batch_id=batch_id,
                kind=kind,
                now_ms=self._clock.now_ms(),
                properties=self._properties,
                end_of_data=end_of_data,
                global_only=global_only,
                optional=optional,
            )
            again = self._perform(self.coordinator.handle(trigger), source, trigger.now_ms)
            if not isinstance(again, Retry):
                return again
            self._show_problems(self.history()[-1].id)
            LOG.info("batch %d is attempted again in %d ms", batch_id, again.pause_ms)
            if not self._clock.pause(again.pause_ms):
                raise StoppedError(batch_id, again.reason)

    def _perform(
        self, actions: Iterable[Action], source: object | None, at_ms: int
    ) -> Retry | GiveUp | None:
        """Carry out actions in their order; after one that failed, nothing may follow.

        Returns what there is to do instead where no checkpoint completed.
        """
        self._failed, self._again = True, None
        if (attempt := self.coordinator.pending) is not None:
            # Operators' coordinators and managers hear of it: no later one may have its id (R2).
            self._folders.note_attempt(attempt)
        todo = deque(actions)
        while todo:
            todo.extend(self._execute(todo.popleft(), source, at_ms))
        self._failed = False
        return self._again

    def _execute(self, action: Action, source: object | None, at_ms: int) -> Iterable[Action]:
        """Carry out one action; returns those that the coordinator decides on because of it."""
        events: Iterable[Event] = ()
        match action:
            case RunAttempt():
                return self._run_attempt(action, source, at_ms)
            case SnapshotCoordinators():
                events = self._coordinators.snapshot(action, new_rows=source is not None)
            case AskFallback():
                events = [self._coordinators.fallback(action)]
            case Publish():
                events = [self._publish(action)]
            case DropMetadata():
                self._folders.drop(action.ids)
            case NotifyManagers():
                self._runner.tell_managers(action)
                self._runner.reclaim(list(self.coordinator.retained))
            case ResetCoordinator():
                self._coordinators.reset(action)
            case ResetRegion():
                self._coordinators.reset_region(action)
            case NotifyCoordinator():
                self._coordinators.notify(action)
            case CommitSinks():
                self._publisher.commit(self.latest.id, _staged(self.latest, action.regions))
                self._publisher.sweep(action.attempt + 1)
            case Ended():
                self._note_end(action)
            case Retry() | GiveUp():
                self._again = action
            case FailQuery():
                if action.problem is None:
                    raise RegionalQueryError(action.error)
                raise OperatorFailedError(action.error) from action.problem.error()
            case _:
                assert_never(action)
        return [action for event in events for action in self.coordinator.handle(event)]

    def _publish(self, action: Publish) -> Event:
        try:
            self._folders.publish(action.metadata)
        except OSError as e:
            cause = f"{type(e).__name__}: {e}"
            return PublishFailed(attempt=action.attempt, cause=cause, now_ms=self._clock.now_ms())
        return Published(attempt=action.attempt, now_ms=self._clock.now_ms())

    def _note_end(self, action: Ended) -> None:
        self._coordinators.ended(action.attempt)
        # Only a published attempt is sure to have a latest checkpoint.
        fallbacks = dict(self.latest.failed) if action.outcome == "regional" else {}
        if fallbacks:
            self._show_problems(action.attempt)
        self._ended.append(EndedAttempt(action.attempt, action.outcome, fallbacks))

    def _show_problems(self, attempt: int) -> None:
        """Write into the log why regions failed while the pipeline goes on: each trace once."""
        found, self._problems = self._problems, {}
        for problem in {problem.kind: problem for problem in found.values()}.values():
            alike = sorted(region for region, other in found.items() if other.kind == problem.kind)
            more = f" (and {len(alike) - 1} regions more)" if len(alike) > 1 else ""
            trace = "" if problem.kind in self._shown else "\n" + problem.trace.rstrip()
            self._shown.add(problem.kind)
            LOG.warning("%s%s%s", found[alike[0]].headline(alike[0], attempt), more, trace)

    def _close_operators(self) -> None:
        """Close what has finished, but not before it was told of its checkpoint (R61, R62)."""
        order = ClosingOrder(self._plan.run, self.latest.to_bytes(), tuple(self._ended))
        self._ended.clear()
        self._runner.close_operators(order)
        self._note_delivered(self._finished)

    def _note_delivered(self, regions: Iterable[str]) -> None:
        for region in regions:
            self.coordinator.handle(NoticeDelivered(checkpoint=self.latest.id, region=region))

    # --- tasks ----------------------------------------------------------------------------------

    def _run_attempt(
        self, action: RunAttempt, source: object | None, at_ms: int
    ) -> Iterable[Action]:
        """Run the tasks of an attempt, and end those that still run when it is over."""
        found: list[Action] = []
        with closing(self._run_tasks(action, source, at_ms)) as events:
            for event in events:
                found += self.coordinator.handle(event)
                if isinstance(event, Acked):
                    self._coordinators.acked(event.region, event.attempt)
                elif isinstance(event, Declined) and event.problem is not None:
                    self._problems[event.region] = event.problem
                if self.coordinator.pending != action.attempt:
                    break
        return found

    def _run_tasks(
        self, action: RunAttempt, source: object | None, at_ms: int
    ) -> Generator[Event, None, None]:
        order = AttemptOrder(
            attempt=action.attempt,
            created_ms=at_ms,
            base=self.latest.to_bytes(),
            drain=action.kind != "checkpoint",
            end_of_data=action.end_of_data,
            global_required=action.global_required,
            restart=action.restart,
            ended=tuple(self._ended),
            events=self._coordinators.take_events(),
        )
        self._ended.clear()
        self._problems.clear()
        watch = _AttemptWatch(action, [metadata.id for metadata in self.coordinator.retained])
        for region in order.events:
            # Without an answer, what it was sent would be nowhere.
            yield RegionStarted(attempt=order.attempt, region=region)
        try:
            if source is not None and action.new_rows:
                yield from self._run_rows(order, source, watch)
            # Events may wait for regions that the batch has no rows for.
            owing = dict.fromkeys((*action.owed, *order.events))
            owed = [region for region in owing if region not in watch.partitions]
            if owed:
                yield from self._run_owed(order, owed, watch)
        except TasksLostError as e:
            yield TasksFailed(attempt=order.attempt, cause=str(e), now_ms=self._clock.now_ms())
        else:
            yield TasksEnded(attempt=order.attempt, now_ms=self._clock.now_ms())

    def _run_rows(
        self, order: AttemptOrder, source: object, watch: _AttemptWatch
    ) -> Generator[Event, None, None]:
        """Run all partitions of the batch to answers for all of their regions.

        Where a task is lost, the partitions are read once more: its own to store the rows of its
        regions, so that the attempt can go on without them, and to learn which regions those are;
        others that ended along with it to run their regions after all.
        """
        lost: frozenset[int] | None = frozenset()
        current = order
        while True:
            try:
                yield from watch.events(self._runner.run(current, source, ()), current)
                return
            except TasksLostError as e:
                if lost is None:
                    raise TasksLostError(
                        f"{current.lost_cause}; then their rows could not be stored: {e}"
                    ) from e
                LOG.warning("attempt %d lost tasks: %s", order.attempt, e)
                known = e.partition is not None and e.partition not in lost
                lost = lost | {e.partition} if known and e.partition is not None else None
                current = replace(
                    order, answered=frozenset(watch.answered), lost=lost, lost_cause=str(e)
                )

    def _run_owed(
        self, order: AttemptOrder, owed: Sequence[str], watch: _AttemptWatch
    ) -> Generator[Event, None, None]:
        """Run regions that have rows to replay and none in this batch."""
        try:
            yield from watch.events(self._runner.run(order, None, owed), order, owed=True)
        except TasksLostError as e:
            LOG.warning("attempt %d lost tasks: %s", order.attempt, e)
            left = [region for region in owed if region not in watch.answered]
            current = replace(order, lost=None, lost_cause=str(e))
            yield from watch.events(self._runner.run(current, None, left), current, owed=True)


class _AttemptWatch:
    """Which regions of an attempt were seen where."""

    def __init__(self, action: RunAttempt, retained: Sequence[int]) -> None:
        self.attempt = action.attempt
        self._finished = action.finished
        self._retained = retained
        self.partitions: dict[str, int] = {}
        self.answered: set[str] = set()

    def events(
        self,
        told: Generator[answers.Answer, None, None],
        order: AttemptOrder,
        *,
        owed: bool = False,
    ) -> Generator[Event, None, None]:
        """Turn answers to an order into events.

        Unless they are of regions that only replay what is `owed`, one that is in two partitions or
        has finished is an error.
        """
        with closing(told):
            for answer in told:
                if answer.attempt != self.attempt:
                    LOG.info("region %r answers for attempt %d late", answer.region, answer.attempt)
                    continue
                seen_in = self.partitions.setdefault(answer.region, answer.partition)
                if not owed and seen_in != answer.partition:
                    raise RegionInTwoTasksError(answer.region, seen_in, answer.partition)
                if not owed and answer.region in self._finished:
                    raise self._finished_error(answer.region)
                yield self._event(answer, _lost_task(answer, order, owed=owed))

    def _finished_error(self, region: str) -> RegionFinishedError:
        finished = self._finished[region]
        older = max((id for id in self._retained if id < finished), default=None)
        return RegionFinishedError(region, finished, older)

    def _event(self, answer: answers.Answer, lost_task: str | None) -> Event:
        common: Any = {"attempt": answer.attempt, "region": answer.region}
        if isinstance(answer, answers.Started):
            return RegionStarted(**common)
        self.answered.add(answer.region)
        if isinstance(answer, answers.Acked):
            return Acked(**common, entry=answer.entry)
        return Declined(
            **common,
            cause=answer.cause,
            in_flight=tuple(answer.in_flight),
            had_rows=answer.had_rows,
            task=lost_task,
            problem=answer.problem,
        )


def _lost_task(answer: answers.Answer, order: AttemptOrder, *, owed: bool) -> str | None:
    """Name the task that was lost with the region, if it was."""
    if not order.only_stores(answer.partition):
        return None
    # Tasks without rows of the batch end together when one of them is lost.
    return "owed" if owed else f"partition {answer.partition}"


def _staged(metadata: CheckpointMetadata, regions: Collection[str]) -> list[Any]:
    return [
        staged
        for region, entry in metadata.regions.items()
        if region in regions
        for staged in entry.staged
    ]
