"""Region tasks in this process: the same runtime without Spark."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast._core import (
    CheckpointMetadata,
    CorruptSegmentError,
    FencedError,
    SnapshotManager,
)
from holdfast.regions.base.paths import local_folder
from holdfast.regions.base.problem import message_of
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.driver.managers import tell
from holdfast.regions.driver.metrics import PipelineMetrics
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.driver.query_html import SHOWN_ATTEMPTS, query_html
from holdfast.regions.driver.task_runner import TasksLostError
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.splits.file_splits import REGION_COLUMN
from holdfast.regions.task.own_memory import OwnMemory
from holdfast.regions.task.region_task import OperatorCache, RegionTask

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.regions.splits import SplitEnumerator

    Partitions = Sequence[Iterable[pa.RecordBatch]]

LOG: Final = logging.getLogger(__name__)


class LocalRunner:
    """Runs the partitions of a batch on threads of this process, with one snapshot manager.

    Parameters
    ----------
    plan : PipelinePlan
        The pipeline.
    segments : Path
        Folder of the merged files.
    tasks : int
        Partitions that run at the same time.
    max_file_bytes : int
        Size in bytes at which a merged file is sealed.
    """

    def __init__(
        self, plan: PipelinePlan, segments: Path, *, tasks: int, max_file_bytes: int
    ) -> None:
        self._plan = plan
        self._tasks = tasks
        self._cache = OperatorCache()
        self.manager = SnapshotManager(segments, max_file_bytes=max_file_bytes)
        self._warnings = SparingLog(LOG)
        self._refused = 0

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[Answer, None, None]:
        """See `TaskRunner`. A source is a sequence of partitions."""
        partitions: Any = source if source is not None else ()
        work: list[tuple[Any, Sequence[str]]] = [(rows, ()) for rows in partitions]
        if owed:
            work.extend(((), owed[first :: self._tasks]) for first in range(self._tasks))
        todo = queue.SimpleQueue[tuple[int, Any, Any]]()
        for partition, (rows, regions) in enumerate(work):
            todo.put((partition, rows, regions))
        messages = queue.SimpleQueue[Answer | TasksLostError | None]()
        over = threading.Event()
        threads = [
            threading.Thread(
                target=self._work, args=(order, todo, messages, over), name="holdfast-task"
            )
            for _ in range(min(self._tasks, len(work)))
        ]
        for thread in threads:
            thread.start()
        problems: list[TasksLostError] = []
        running = len(threads)
        try:
            while running:
                message = messages.get()
                if message is None:
                    running -= 1
                elif isinstance(message, TasksLostError):
                    problems.append(message)
                else:
                    yield message
        finally:
            # The next attempt must not run beside this one.
            over.set()
            for thread in threads:
                thread.join()
        if problems:
            raise problems[0]

    def close_operators(self, order: ClosingOrder) -> None:
        """See `TaskRunner`."""
        self._cache.close(order)

    def tell_managers(self, message: NotifyManagers) -> None:
        """See `TaskRunner`."""
        tell(self.manager, message)
        refused = self.manager.stats().delete_failures
        if refused > self._refused:
            self._warnings.warn(
                "segments",
                f"{refused - self._refused} times a file of segments could not be deleted; the "
                "manager tries again with the next checkpoint",
            )
        self._refused = refused

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """See `TaskRunner`."""
        pipeline = self._plan.pipeline
        self.manager.restore({metadata.id: metadata.segments(pipeline) for metadata in retained})
        try:
            self.manager.sweep()
        except (CorruptSegmentError, FencedError):
            raise
        except OSError as error:
            self._warnings.warn(
                "sweep",
                "files of earlier runs cannot be deleted yet, and the next start tries again: "
                f"{error}",
            )

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """See `TaskRunner`. The only manager lives as long as this."""

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        """See `TaskRunner`. Without Spark nobody else looks."""

    def show_attempt(self, record: HistoryRecord) -> None:
        """See `TaskRunner`. Without Spark nobody else looks."""

    def close(self) -> None:
        """Seal the open files."""
        self.manager.close()

    def _work(
        self,
        order: AttemptOrder,
        todo: queue.SimpleQueue[tuple[int, Any, Any]],
        messages: queue.SimpleQueue[Answer | TasksLostError | None],
        over: threading.Event,
    ) -> None:
        def tell(answers: Sequence[Answer]) -> None:
            if over.is_set():
                raise TasksLostError("the attempt is over")
            for answer in answers:
                messages.put(answer)

        partition = -1
        try:
            while (work := _next_of(todo)) is not None:
                partition, rows, regions = work
                task = RegionTask(
                    self._plan,
                    order,
                    partition=partition,
                    store=self.manager,
                    tell=tell,
                    cache=self._cache,
                )
                task.run(_kept(rows), regions)
        except BaseException as e:
            lost = TasksLostError(f"{type(e).__name__}: {message_of(e)}", partition=partition)
            lost.__cause__ = e
            messages.put(lost)
        finally:
            messages.put(None)


def _next_of(todo: queue.SimpleQueue[tuple[int, Any, Any]]) -> tuple[int, Any, Any] | None:
    """Return the next partition; apart from running it, whose rows may come from a queue, too."""
    try:
        return todo.get_nowait()
    except queue.Empty:
        return None


class _Once:
    """Rows that can be read once: what is left of them is not the partition of another attempt."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self._begun = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._begun:
            raise ValueError(
                "the rows of the partition were given as an iterator, which was read already, and "
                "the attempt has to be repeated: give run_batch() a list, or another iterable that "
                "can be read again"
            )
        self._begun = True
        return self._rows


def _kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows as they are when they are read: their caller may use the memory again."""
    for batch in batches:
        yield OwnMemory(batch.schema).of(batch, given=None)


class LocalQuery:
    """A pipeline that runs in this process, batch by batch, without Spark.

    Made by ``RegionalWriter.open_local``. Everything is as on Spark: checkpoints, restart, failing
    regions, sinks. A context manager; leaving it does not drain, see `finish`.
    """

    def __init__(
        self,
        driver: PipelineDriver,
        runner: LocalRunner,
        *,
        max_file_bytes: int,
        enumerator: SplitEnumerator | None,
        opened: ExitStack,
    ) -> None:
        self._driver = driver
        self._runner = runner
        self._max_file_bytes = max_file_bytes
        self._enumerator = enumerator
        # From here on, what was opened for the pipeline is closed by `close`.
        self._opened = opened.pop_all()
        self._open = True

    def run_batch(self, partitions: Partitions, *, batch_id: int | None = None) -> None:
        """Run one batch to a completed checkpoint.

        Parameters
        ----------
        partitions : sequence of iterables of pyarrow.RecordBatch
            Rows of the batch; each partition is one task. Iterables that can be read again: an
            attempt may have to be repeated.
        batch_id : int, optional
            Number of the batch. One that a checkpoint covers already is not run again, so after
            a restart the same batches may be given from the start. By default the next one.

        Raises
        ------
        RegionFinishedError
            If there are rows of a region whose data has ended.
        RegionalQueryError
            If the pipeline cannot go on. The checkpoints stay as they are.
        ValueError
            If the pipeline reads files, see `run_available`.
        """
        if self._enumerator is not None:
            raise ValueError("the pipeline reads files by itself: call run_available()")
        number = self._driver.latest.batch_id + 1 if batch_id is None else batch_id
        self._driver.run_batch(
            number,
            [_Once(rows) if isinstance(rows, Iterator) else rows for rows in partitions],
        )

    def run_available(self, *, max_batches: int | None = None) -> int:
        """Read the files of the source that are there and were not read yet, batch by batch.

        Parameters
        ----------
        max_batches : int, optional
            Number of batches after which to return although there is more to read.

        Returns
        -------
        int
            Number of batches that were run.

        Raises
        ------
        RegionalQueryError
            If the pipeline cannot go on. The checkpoints stay as they are.
        ValueError
            If the pipeline has no `FileSplits` as its source, see `run_batch`.
        """
        import pyarrow as pa

        enumerator = self._enumerator
        if enumerator is None:
            raise ValueError("the pipeline reads no files: give rows to run_batch()")
        # As on Spark, a row for each region makes its task run.
        names = [pa.record_batch({REGION_COLUMN: [region]}) for region in enumerator.regions]
        partitions = [[name] for name in names]
        enumerator.freeze()
        batches = 0
        while batches != max_batches and enumerator.has_work():
            self._driver.run_batch(self._driver.latest.batch_id + 1, partitions)
            batches += 1
        return batches

    def finish(self) -> None:
        """Replay what failed regions still owe, until one global checkpoint holds everything."""
        self._driver.finish()

    def end_of_data(self) -> None:
        """End data: no row will ever follow. Repeating it does nothing.

        Regions replay what they still owe, then their operators flush, see
        `Operator.on_end_of_data`. One global checkpoint holds the flushed state, and every region
        as finished: its operators never run again, also after a restart. Going back to an older
        checkpoint takes that back. Rows of regions that are new may still be given.

        Raises
        ------
        RegionalQueryError
            If some region keeps failing. Then data has not ended, and no region is finished.
        """
        self._driver.end_of_data()

    def stop_with_savepoint(self, path: str | Path) -> None:
        """Write a savepoint, then close; see `RegionalQuery.stop_with_savepoint`.

        Parameters
        ----------
        path : str or Path
            Folder to create.

        Raises
        ------
        FileExistsError
            If the path is in use.
        SavepointError
            If some region keeps failing.
        OSError
            If the savepoint cannot be written. After any of these the pipeline can go on.
        """
        self._driver.stop_with_savepoint(local_folder(path), max_file_bytes=self._max_file_bytes)
        self.close()

    @property
    def latest(self) -> CheckpointMetadata:
        """Metadata of the latest completed checkpoint."""
        return self._driver.latest

    def history(self, *, last: int | None = None) -> Sequence[HistoryRecord]:
        """Return the attempts of the last ``history_days``, see `RegionalQuery.history`.

        Parameters
        ----------
        last : int, optional
            Return so many at most, the newest.
        """
        return self._driver.history(last=last)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: where the pipeline stands, and its newest attempts."""
        return query_html(
            self._driver.name,
            "it runs in this process" if self._open else "it is closed",
            self.latest,
            self.history(last=SHOWN_ATTEMPTS),
        )

    def metrics(self) -> PipelineMetrics:
        """Return what operators did since `open_local`, see `RegionalQuery.metrics`."""
        return self._driver.metrics()

    @property
    def manager(self) -> SnapshotManager:
        """The snapshot manager, for its figures."""
        return self._runner.manager

    def close(self) -> None:
        """Let go of the checkpoint; may be repeated.

        Another thread that waits between two attempts at a batch gives the batch up.
        """
        self._open = False
        self._driver.interrupt()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
