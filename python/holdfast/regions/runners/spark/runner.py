"""Region tasks in Spark jobs: `mapInArrow` over the rows of a micro-batch."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import (
    CheckpointMetadata,
    CorruptSegmentError,
    FencedError,
    manager_message,
)
from holdfast.regions.base.clock import now_ms
from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.paths import spark_name
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.checkpoint.history_pages import bounded, encoded
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.driver.metrics import level
from holdfast.regions.driver.task_runner import TasksLostError
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.runners.spark.orphans import orphan_reclaimer
from holdfast.regions.runners.spark.worker import close_kept_operators, run_region_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = logging.getLogger(__name__)

POLL_MS: Final = 200

# The rows of a batch stay in memory until it is over, and the next batch needs as much. What is
# given back to the operating system in between has to be asked for again, and cleared: a tenth of
# the CPU time of a batch. So PyArrow's allocator (mimalloc) keeps what is free for a minute, after
# which Spark ends a worker without work, instead of 10 ms; and that of the C library, which Python
# and NumPy use, keeps 128 MiB, also of blocks that it would map one by one.
KEEP_FREED_MEMORY: Final = {
    "MIMALLOC_PURGE_DELAY": "60000",
    "MALLOC_TRIM_THRESHOLD_": str(128 * 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
}

SUMMARY: Final = "partition int, regions int"

#: What PySpark puts between Java's words and those of a worker.
PYTHON_TRACEBACK: Final = "Traceback (most recent call last):"

_FAILED_TASK: Final = re.compile(r"Task (\d+) in stage")


class SparkRunner:
    """Runs attempts as Spark jobs on the cluster of a session.

    Parameters
    ----------
    spark : SparkSession
        The session; its application runs the Holdfast plugin.
    plan : PipelinePlan
        The pipeline.
    folders : CheckpointFolders
        Where the checkpoint lies.
    max_file_bytes : int
        Size in bytes at which a merged file is sealed.

    Raises
    ------
    RuntimeError
        If the application does not run the Holdfast plugin.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: PipelinePlan,
        folders: CheckpointFolders,
        *,
        max_file_bytes: int,
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._plan = plan
        self._folder = spark_name(folders.segments)
        self._max_file_bytes = max_file_bytes
        self._warnings = SparingLog(LOG)
        jvm: Any = self._context._jvm
        self._bridge = jvm.io.holdfast.spark.RegionalBridge
        self._open()
        # Of workers that begin from now on, unless the user has set them (spark.executorEnv).
        for variable, value in KEEP_FREED_MEMORY.items():
            self._context.environment.setdefault(variable, value)
        self._plan_value = self._context.broadcast(plan)
        self._reclaimer = orphan_reclaimer(folders, plan.pipeline, self._bridge)

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[answers.Answer, None, None]:
        """See `TaskRunner`. A source is a DataFrame of one micro-batch."""
        rows: Any = source if source is not None else self._owed_rows(owed)
        job = _Job(self._spark, f"holdfast-{self._plan.pipeline}-{order.attempt}")
        # With the code of the task: Spark sends that once to every executor, as it is. A broadcast
        # of our own would cost several calls into the JVM.
        task = _task(self._plan_value, order, self._folder, self._max_file_bytes, bool(owed))
        job.start(lambda: rows.mapInArrow(task, SUMMARY).collect(), ended=self._wake)
        try:
            yield from self._answers(job, order)
        finally:
            job.stop()
        if job.problem is not None:
            partition = None if job.cancelled or source is None else _partition(job.problem)
            raise TasksLostError(
                job.cancelled or _reason(job.problem), partition=partition
            ) from job.problem

    def close_operators(self, order: ClosingOrder) -> None:
        """See `TaskRunner`.

        Nothing says which worker keeps which operators, so there are as many tasks as may run at
        the same time: executors hand tasks to their idle workers in turn.
        """
        slices = self._context.defaultParallelism
        task: Any = partial(close_kept_operators, self._plan.pipeline, order)
        job = _Job(self._spark, f"holdfast-{self._plan.pipeline}-close")
        job.start(
            lambda: self._spark.range(0, slices, 1, slices).mapInArrow(task, SUMMARY).collect()
        )
        job.wait(self._plan.options.region_timeout_ms / 1000)
        job.stop()
        if job.problem is not None:
            LOG.warning("operators may not be closed: %s", _reason(job.problem))

    def tell_managers(self, message: NotifyManagers) -> None:
        """See `TaskRunner`."""
        encoded = manager_message(
            message.message,
            message.checkpoint,
            message.fallbacks,
            message.retained,
            decided=message.decided,
            released=message.released,
        )
        self._bridge.tellManagers(self._folder, encoded)

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        """See `TaskRunner`."""
        try:
            self._reclaim(retained)
        except (CorruptSegmentError, FencedError, FileNotFoundError):
            # Files that the checkpoint needs are missing or damaged, or another application's.
            raise
        except OSError as error:
            self._not_reclaimed(error)

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """See `TaskRunner`."""
        try:
            self._reclaim(retained)
        except OSError as error:
            # What the next batch cannot do without, it will miss by itself.
            self._not_reclaimed(error)

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        """See `TaskRunner`: in Spark's metrics system."""
        prefix = f"regional.{level(self._plan.pipeline)}"
        lines = "\n".join(f"{prefix}.{name} {value}" for name, value in sums.items())
        _best_effort(lambda: self._bridge.showMetrics(self._plan.pipeline, lines))

    def show_attempt(self, record: HistoryRecord) -> None:
        """See `TaskRunner`: in Spark's UI, and in the event log."""
        line = encoded(bounded(record)).decode()
        _best_effort(lambda: self._bridge.attemptEnded(self._plan.pipeline, line))

    def close(self) -> None:
        """Let go of the cluster's side, as far as there still is one."""
        with ExitStack() as closing:
            closing.callback(_best_effort, self._plan_value.destroy)
            closing.callback(_best_effort, self._reclaimer.close)
            closing.callback(_best_effort, lambda: self._bridge.close(self._plan.pipeline))

    # --- details --------------------------------------------------------------------------------

    def _answers(self, job: _Job, order: AttemptOrder) -> Iterator[answers.Answer]:
        options = self._plan.options
        give_up_ms = order.created_ms + options.region_timeout_ms + options.task_grace_ms
        while True:
            ended = job.ended
            polled = self._bridge.poll(self._plan.pipeline, 0 if ended else POLL_MS)
            if polled is not None:
                for message in answers.messages_of(bytes(polled)):
                    run, decoded = answers.decode(message)
                    if run == self._plan.run:
                        yield from decoded
            elif ended:
                return
            elif order.lost is not None and now_ms() > give_up_ms:
                job.cancel("tasks did not answer within region_timeout")

    def _wake(self) -> None:
        """Let `_answers` find out that its job has ended."""
        self._bridge.wake(self._plan.pipeline)

    def _owed_rows(self, owed: Sequence[str]) -> DataFrame:
        slices = min(len(owed), self._context.defaultParallelism)
        rows = self._context.parallelize([(region,) for region in owed], slices)
        return self._spark.createDataFrame(rows, "region string")

    def _not_reclaimed(self, error: OSError) -> None:
        self._warnings.warn(
            "reclaim",
            "files of executors that are gone cannot be deleted yet, and the next checkpoint tries "
            f"again: {error}",
        )

    def _open(self) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._bridge.open(self._plan.pipeline, self._folder)
        except (Py4JJavaError, PySparkException) as e:
            raise RuntimeError(f"cannot start: {_reason(e)}") from e

    def _reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        # In this order: a term given in between is newer, and its files stop the pass.
        newest = self._bridge.newestTerm(self._folder)
        live = set(self._bridge.liveTerms(self._folder))
        done = self._reclaimer.reclaim(retained, live_terms=live, newest_term=newest)
        if done:
            LOG.info("files of executors that are gone: %s", done)


class _Job:
    """One Spark job on a thread of its own, in a job group of its own."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._group = f"{name}-{uuid.uuid4().hex[:8]}"
        self._name = name
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self.cancelled = ""
        self.problem: BaseException | None = None

    @property
    def ended(self) -> bool:
        """No task of the job runs any more."""
        return self._ended.is_set()

    def start(
        self, work: Callable[[], object], *, ended: Callable[[], None] = lambda: None
    ) -> None:
        """Begin the job; calls `ended` once when it has ended."""
        from pyspark import inheritable_thread_target

        def run() -> None:
            try:
                self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)
                work()
            except BaseException as e:
                self.problem = e
            finally:
                self._ended.set()
                _best_effort(ended)

        self._thread = threading.Thread(
            target=inheritable_thread_target(self._spark)(run), name=self._name, daemon=True
        )
        self._thread.start()

    def cancel(self, reason: str) -> None:
        """End its tasks."""
        if not self.cancelled:
            self.cancelled = reason
            LOG.warning("%s is cancelled: %s", self._name, reason)
            _best_effort(lambda: self._context.cancelJobGroup(self._group))

    def wait(self, seconds: float) -> None:
        """Wait until it ended, but not for longer."""
        if self._thread is not None:
            self._thread.join(seconds)

    def stop(self) -> None:
        """Wait until it ended; ends it first if the driver waits for no more answers."""
        if not self.ended:
            self.cancel("its answers are not waited for any more")
        if self._thread is not None:
            self._thread.join()


def _task(
    plan: Any, order: AttemptOrder, folder: str, max_file_bytes: int, owed: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_region_task(
            plan.value,
            order,
            batches,
            folder=folder,
            max_file_bytes=max_file_bytes,
            owed=owed,
        )

    return task


def _best_effort(call: Callable[[], object]) -> None:
    """Make a call into the JVM that is of no use any more if the JVM is gone."""
    try:
        call()
    except Exception as e:
        LOG.warning("a call to the JVM of the driver failed: %s", _reason(e))


def _partition(problem: BaseException) -> int | None:
    """Find out which task made a job fail: Spark says so in words only."""
    found = _FAILED_TASK.search(str(problem))
    return int(found[1]) if found is not None else None


def _reason(problem: BaseException) -> str:
    """Say in a line what went wrong, in Java's words if it went wrong there.

    Where a Python worker failed, these end with its traceback, whose last line says why: the module
    that it could not import, for example.
    """
    thrown: Any = getattr(problem, "java_exception", None)
    text = str(problem) if thrown is None else str(thrown.toString())
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return type(problem).__name__
    _, traceback, raised = text.partition(PYTHON_TRACEBACK)
    # Lines of the traceback and of Java's stack are indented.
    causes = [line for line in raised.splitlines() if line.strip() and not line[0].isspace()]
    if not traceback or not causes:
        return lines[0]
    return f"{lines[0].partition(PYTHON_TRACEBACK)[0].rstrip(': ')}: {causes[0]}"
