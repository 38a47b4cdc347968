"""The driver of a pipeline: executes what the coordinator decides."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from holdfast._core import CheckpointMetadata
from holdfast.regions import answers
from holdfast.regions.coordinator import (
    Acked,
    Action,
    CheckpointCoordinator,
    CommitSinks,
    CoordinatorOptions,
    Declined,
    DropMetadata,
    Ended,
    Event,
    FailQuery,
    HistoryRecord,
    NotifyManagers,
    Publish,
    Published,
    PublishFailed,
    RegionStarted,
    Retry,
    RunAttempt,
    Start,
    TasksEnded,
    TasksFailed,
    Topology,
    Trigger,
)
from holdfast.regions.errors import RegionalQueryError, RegionInTwoTasksError
from holdfast.regions.orders import AttemptOrder, EndedAttempt, PipelinePlan
from holdfast.regions.sinks import Publisher
from holdfast.regions.task import now_ms

LOG: Final = logging.getLogger(__name__)

Kind = Literal["checkpoint", "savepoint", "final"]


class TasksLostError(RuntimeError):
    """Tasks of an attempt ended, or were ended, without an answer for all of their regions."""


class TaskRunner(Protocol):
    """Runs region tasks somewhere, and reaches the managers there."""

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Iterator[answers.Answer]:
        """Run the tasks of an attempt; yields answers while they run.

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

    def tell_managers(self, message: NotifyManagers) -> None:
        """Pass a message on to every manager; best effort."""

    def restore(self, checkpoints: Mapping[int, Any]) -> None:
        """Make the segments of retained checkpoints known, and sweep what nobody needs."""


@dataclass(frozen=True)
class CheckpointFolders:
    """Where a pipeline keeps what.

    Parameters
    ----------
    root : Path
        Folder of the pipeline's checkpoint.
    """

    root: Path

    @property
    def metadata(self) -> Path:
        """One file for every retained checkpoint."""
        return self.root / "metadata"

    @property
    def segments(self) -> Path:
        """Merged files of all executors."""
        return self.root / "segments"

    @property
    def output(self) -> Path:
        """Rows on their way to a function, see ``foreach_batch``."""
        return self.root / "output"

    @property
    def last_attempt(self) -> Path:
        """Number of the newest attempt: one that was aborted leaves no other trace (R2)."""
        return self.root / "last-attempt"


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
    """

    def __init__(
        self,
        plan: PipelinePlan,
        topology: Topology,
        options: CoordinatorOptions,
        folders: CheckpointFolders,
        runner: TaskRunner,
        publisher: Publisher,
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._options = options
        self._folders = folders
        self._runner = runner
        self._publisher = publisher
        self._coordinator: CheckpointCoordinator | None = None
        self._ended: list[EndedAttempt] = []
        self._lock = threading.Lock()

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore the latest checkpoint, or begin with an empty one (R26).

        Raises
        ------
        CorruptMetadataError, FileNotFoundError
            If the latest checkpoint, or a segment it needs, is damaged.
        """
        folder = self._folders.metadata
        folder.mkdir(parents=True, exist_ok=True)
        retained = [
            CheckpointMetadata.read(folder / f"{number:016x}.hfc")
            for number in CheckpointMetadata.list(folder)
        ]
        latest = retained[-1] if retained else None
        self._runner.restore(
            {metadata.id: metadata.segments(self._plan.pipeline) for metadata in retained}
        )
        self._coordinator = CheckpointCoordinator(
            self._options,
            self._topology,
            restored=latest,
            retained=retained,
            last_id=max(latest.id if latest is not None else 0, self._last_attempt()),
        )
        self._perform(self.coordinator.handle(Start(now_ms=now_ms())), None, now_ms())

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
        RegionalQueryError
            If the coordinator gave up; nothing that was completed before is touched.
        """
        with self._lock:
            self._until_done(batch_id, "checkpoint", source, global_only=global_only)

    def finish(self) -> None:
        """Replay what regions still owe, until a global checkpoint holds everything (R25).

        Raises
        ------
        RegionalQueryError
            If some region keeps failing.
        """
        with self._lock:
            if any(entry.failed or entry.in_flight for entry in self.latest.regions.values()):
                self._until_done(self.latest.batch_id, "final", None)

    # --- attempts -------------------------------------------------------------------------------

    def _until_done(
        self, batch_id: int, kind: Kind, source: object | None, *, global_only: bool = False
    ) -> None:
        while not self._attempt(batch_id, kind, source, global_only=global_only):
            LOG.info("batch %d is attempted again", batch_id)

    def _attempt(
        self, batch_id: int, kind: Kind, source: object | None, *, global_only: bool
    ) -> bool:
        """Make one attempt; False when it has to be repeated."""
        at_ms = now_ms()
        trigger = Trigger(
            batch_id=batch_id,
            kind=kind,
            now_ms=at_ms,
            properties={"pipeline": self._plan.pipeline},
            end_of_data=False,
            global_only=global_only,
        )
        return self._perform(self.coordinator.handle(trigger), source, at_ms)

    def _perform(self, actions: Iterable[Action], source: object | None, at_ms: int) -> bool:
        done = True
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            if isinstance(action, RunAttempt):
                for event in self._run_tasks(action, source, at_ms):
                    todo.extend(self.coordinator.handle(event))
            elif isinstance(action, Publish):
                todo.extend(self.coordinator.handle(self._publish(action)))
            elif isinstance(action, Retry):
                done = False
            else:
                self._execute(action)
        return done

    def _execute(self, action: Action) -> None:
        if isinstance(action, NotifyManagers):
            self._runner.tell_managers(action)
        elif isinstance(action, CommitSinks):
            self._publisher.commit(self.latest.id, _staged(self.latest, action.regions))
            self._publisher.sweep(action.attempt + 1)
        elif isinstance(action, DropMetadata):
            for number in action.ids:
                CheckpointMetadata.delete(self._folders.metadata, number)
        elif isinstance(action, Ended):
            self._note_end(action)
        elif isinstance(action, FailQuery):
            raise RegionalQueryError(action.error)

    def _publish(self, action: Publish) -> Event:
        try:
            action.metadata.write(self._folders.metadata)
        except OSError as e:
            cause = f"{type(e).__name__}: {e}"
            return PublishFailed(attempt=action.attempt, cause=cause, now_ms=now_ms())
        return Published(attempt=action.attempt, now_ms=now_ms())

    def _note_end(self, action: Ended) -> None:
        latest = self.latest
        fallbacks = dict(latest.failed) if action.outcome == "regional" else {}
        self._ended.append(EndedAttempt(action.attempt, action.outcome, fallbacks))

    def _last_attempt(self) -> int:
        try:
            return int(self._folders.last_attempt.read_text())
        except FileNotFoundError:
            return 0

    def _note_attempt(self, attempt: int) -> None:
        # Not synced: tasks that could take a new attempt for this one do not outlive the machine.
        staged = self._folders.last_attempt.with_suffix(".new")
        staged.write_text(str(attempt))
        staged.replace(self._folders.last_attempt)

    # --- tasks ----------------------------------------------------------------------------------

    def _run_tasks(self, action: RunAttempt, source: object | None, at_ms: int) -> Iterator[Event]:
        order = AttemptOrder(
            attempt=action.attempt,
            created_ms=at_ms,
            base=self.latest.to_bytes(),
            drain=action.kind != "checkpoint",
            restart=action.restart,
            ended=tuple(self._ended),
        )
        self._ended.clear()
        self._note_attempt(action.attempt)
        watch = _AttemptWatch(action)
        try:
            if source is not None and action.new_rows:
                yield from watch.events(self._runner.run(order, source, ()))
            owed = [region for region in action.owed if region not in watch.partitions]
            if owed:
                yield from watch.events(self._runner.run(order, None, owed))
        except TasksLostError as e:
            yield from self._rescue(order, action, source, watch, str(e))
        else:
            yield TasksEnded(attempt=action.attempt, now_ms=now_ms())

    def _rescue(
        self,
        order: AttemptOrder,
        action: RunAttempt,
        source: object | None,
        watch: _AttemptWatch,
        problem: str,
    ) -> Iterator[Event]:
        """Store the rows of regions whose task is gone, so that the attempt can go on without them.

        Reading all rows once more is also how it becomes known which regions had any.
        """
        LOG.warning("attempt %d lost tasks: %s", order.attempt, problem)
        rescue = replace(
            order,
            restart=frozenset(),
            answered=frozenset(watch.answered),
            rescue=True,
            rescue_cause=problem,
            ended=(),
        )
        try:
            if source is not None and action.new_rows:
                yield from watch.events(self._runner.run(rescue, source, ()))
            owed = [region for region in action.owed if region not in watch.answered]
            if owed:
                yield from watch.events(self._runner.run(rescue, None, owed))
        except TasksLostError as e:
            cause = f"{problem}; then their rows could not be stored: {e}"
            yield TasksFailed(attempt=order.attempt, cause=cause, now_ms=now_ms())
        else:
            yield TasksEnded(attempt=order.attempt, now_ms=now_ms())


class _AttemptWatch:
    """Which regions of an attempt were seen where."""

    def __init__(self, action: RunAttempt) -> None:
        self.attempt = action.attempt
        self.partitions: dict[str, int] = {}
        self.answered: set[str] = set()

    def events(self, told: Iterable[answers.Answer]) -> Iterator[Event]:
        for answer in told:
            if answer.attempt != self.attempt:
                LOG.info("region %r answers for attempt %d late", answer.region, answer.attempt)
                continue
            seen_in = self.partitions.setdefault(answer.region, answer.partition)
            if seen_in != answer.partition:
                raise RegionInTwoTasksError(answer.region, seen_in, answer.partition)
            yield self._event(answer)

    def _event(self, answer: answers.Answer) -> Event:
        # A region's operators all run in one task, so it has one member.
        common: Any = {"attempt": answer.attempt, "region": answer.region, "member": "task"}
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
        )


def _staged(metadata: CheckpointMetadata, regions: Collection[str]) -> list[Any]:
    return [
        staged
        for region, entry in metadata.regions.items()
        if region in regions
        for staged in entry.staged
    ]
