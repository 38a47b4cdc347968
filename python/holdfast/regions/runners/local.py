"""Region tasks in this process: the same runtime without Spark."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from holdfast._checks import optional_int
from holdfast._core import CheckpointMetadata, CorruptSegmentError, FencedError, SnapshotManager
from holdfast.files.paths import local_folder
from holdfast.regions.base.errors import traced_from_the_call
from holdfast.regions.base.normal_form import normal_form
from holdfast.regions.base.problem import in_words
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.base.turns import work_for
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.driver.pipeline_query import PipelineQuery
from holdfast.regions.driver.task_runner import TasksLostError
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.splits.file_splits import REGION_COLUMN
from holdfast.regions.task.fitting import batches_of, type_name
from holdfast.regions.task.own_memory import OwnMemory
from holdfast.regions.task.partition.cache import OperatorCache
from holdfast.regions.task.partition.region_task import RegionTask

if TYPE_CHECKING:
    from holdfast.regions.splits import SplitEnumerator

    Partitions = Sequence[Iterable[pa.RecordBatch]]

LOG: Final = logging.getLogger(__name__)


class LocalRunner:
    """Runs `tasks` partitions of a batch at a time, on threads, with one snapshot manager."""

    def __init__(
        self, plan: PipelinePlan, segments: Path, *, tasks: int, max_file_bytes: int
    ) -> None:
        self._plan = plan
        for stage in plan.stages:
            _ = stage.template  # made of the operator as it is now
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
        messages = queue.SimpleQueue[Sequence[Answer] | None]()
        over = threading.Event()

        def tell(answers: Sequence[Answer]) -> None:
            if over.is_set():
                raise TasksLostError("the attempt is over")
            messages.put(answers)

        def work_off(partition: int, rows: Any, regions: Sequence[str]) -> None:
            try:
                if not over.is_set():
                    work_for(self._plan.run)
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
                raise TasksLostError(in_words(e), partition=partition) from e
            finally:
                messages.put(None)

        with ThreadPoolExecutor(self._tasks, "holdfast-task") as threads:
            running = [threads.submit(work_off, n, *of_one) for n, of_one in enumerate(work)]
            try:
                for _ in running:
                    for answers in iter(messages.get, None):
                        yield from answers
            finally:
                # The next attempt must not run together with this one.
                over.set()
        for task in running:
            task.result()

    def close_operators(self, order: ClosingOrder) -> None:
        """See `TaskRunner`."""
        self._cache.close(order)

    def tell_managers(self, message: NotifyManagers) -> None:
        """See `TaskRunner`."""
        tell_manager(self.manager, message)
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
        try:
            self.manager.restore_checkpoints(self._plan.pipeline, retained)
        except FileNotFoundError as error:
            # Only regions that need them fail, and older checkpoints may be damaged.
            self._warnings.warn("segments", str(error))
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
        """Do nothing: without Spark there is no reader."""

    def show_attempt(self, record: HistoryRecord) -> None:
        """Do nothing: without Spark there is no reader."""

    def close(self) -> None:
        """Close the operators, and seal the open files."""
        self._cache.close_all(self._plan.options.region_timeout_ms / 1000)
        self.manager.close()


class _Once:
    """Rows that can be read only once, so that another attempt would lose some."""

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
    """Yield copies of rows: their caller may reuse the memory."""
    for rows in batches:
        if (found := batches_of(rows)) is None:
            raise TypeError(
                f"a partition given to run_batch() has {type_name(rows)} in it: expected an "
                "iterable of pyarrow.RecordBatch or pyarrow.Table"
            )
        for batch in map(normal_form, found):
            yield OwnMemory(batch.schema).of(batch, given=None)


def tell_manager(manager: SnapshotManager, message: NotifyManagers) -> None:
    """Pass a message on to a manager, if it can be reached (R43).

    The manager first releases the segments of refused answers: after the decision they count as
    part of the checkpoint. A manager whose folder is missing for the moment misses the message. The
    next message says as much about the checkpoints.

    Raises a ValueError for a view that cannot be current.
    """
    try:
        for owner, refs in message.released.items():
            manager.release(owner, refs)
        if message.message == "aborted":
            manager.aborted(message.checkpoint, message.retained, decided=message.decided)
        else:  # a complete checkpoint completed partially, without fallbacks
            manager.partially_completed(
                message.checkpoint, message.fallbacks, message.retained, decided=message.decided
            )
    except OSError as e:
        LOG.warning("checkpoint %d: a manager was not told of it: %s", message.checkpoint, e)


class LocalQuery(PipelineQuery):
    """A pipeline that runs in this process, batch by batch, without Spark.

    Made by ``RegionalWriter.open_local``. Everything is as on Spark: checkpoints, restart, failing
    regions, sinks. A context manager; leaving it does not drain, see `finish`.

    Any thread may call its methods. Methods that change the pipeline wait for each other. They
    raise `RegionalQueryError` once the pipeline is closed, in a forked child, and in the pipeline's
    own code, such as its operators and the function of ``foreach_batch``.
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
        super().__init__(driver, max_file_bytes=max_file_bytes)
        self._runner = runner
        self._enumerator = enumerator
        # From here on, `close` closes everything that was opened for the pipeline.
        self._opened = opened.pop_all()
        self._open = True

    @traced_from_the_call
    def run_batch(self, partitions: Partitions, *, batch_id: int | None = None) -> None:
        """Run one batch to a completed checkpoint.

        Parameters
        ----------
        partitions : sequence of iterables of pyarrow.RecordBatch or pyarrow.Table
            Rows of the batch; each partition is one task. The iterables can be read again: an
            attempt may have to be repeated.
        batch_id : int, optional
            Number of the batch. One that a checkpoint covers is not run again, so a restart may
            give the same batches from the start. By default the next one.

        Raises
        ------
        RegionFinishedError
            If there are rows of a region whose data has ended.
        RegionalQueryError
            If the pipeline cannot continue. The checkpoints are unchanged.
        ValueError
            If the pipeline reads files, see `run_available`; or if `batch_id` was left out, and a
            later batch was run: its rows would be in no checkpoint.
        """
        if self._enumerator is not None:
            raise ValueError("the pipeline reads files by itself: call run_available()")
        self._driver.run_batch(
            optional_int("batch_id", batch_id, at_least=0),
            [_Once(rows) if isinstance(rows, Iterator) else rows for rows in partitions],
        )

    @traced_from_the_call
    def run_available(self, *, max_batches: int | None = None) -> int:
        """Read the files of the source that were not read yet, batch by batch.

        Parameters
        ----------
        max_batches : int, optional
            Bound on the batches of this call.

        Returns
        -------
        int
            Number of batches that were run.

        Raises
        ------
        RegionalQueryError
            If the pipeline cannot continue. The checkpoints are unchanged.
        ValueError
            If the pipeline has no `FileSplits` as its source, see `run_batch`.
        """
        enumerator = self._enumerator
        if enumerator is None:
            raise ValueError("the pipeline reads no files: give rows to run_batch()")
        self._driver.turns.require("run_available()")
        # A row for each region makes its task run, as on Spark.
        names = [pa.record_batch({REGION_COLUMN: [region]}) for region in enumerator.regions]
        partitions = [[name] for name in names]
        enumerator.freeze()
        max_batches = optional_int("max_batches", max_batches, at_least=0)
        batches = 0
        while batches != max_batches and enumerator.has_work():
            self._driver.run_batch(None, partitions)
            batches += 1
        return batches

    @traced_from_the_call
    def finish(self) -> None:
        """Replay pending rows until one global checkpoint holds everything."""
        self._driver.finish()

    @traced_from_the_call
    def end_of_data(self) -> None:
        """End data: no row will follow. Repeating it does nothing.

        Regions replay their pending rows, then their operators flush, see
        `Operator.on_end_of_data`. One global checkpoint holds the flushed state, and every region
        as finished: its operators never run again, also after a restart. Going back to an older
        checkpoint undoes that. Rows of new regions may still be given.

        Raises
        ------
        RegionalQueryError
            If some region keeps failing. Then data has not ended, and no region is finished.
        """
        self._driver.end_of_data()

    @traced_from_the_call
    def stop_with_savepoint(self, path: str | Path) -> None:
        """Write a savepoint, then close; see `RegionalQuery.stop_with_savepoint`."""
        self._driver.stop_with_savepoint(local_folder(path), max_file_bytes=self._max_file_bytes)
        self.close()

    @property
    def manager(self) -> SnapshotManager:
        """The snapshot manager, for its figures."""
        return self._runner.manager

    def close(self) -> None:
        """Close the pipeline; may be repeated. Without effect in a forked child.

        A batch that waits between two attempts is abandoned; an attempt under way ends first.
        """
        self._driver.close(self._opened)
        self._open = False

    def _state(self) -> str:
        return "it runs in this process" if self._open else "it is closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
