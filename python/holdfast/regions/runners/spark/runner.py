"""Region tasks in Spark jobs: `mapInArrow` over the rows of a micro-batch."""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast._core import CheckpointMetadata, CorruptSegmentError, FencedError, manager_message
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.checkpoint.declared import Compare, Comparison
from holdfast.regions.checkpoint.history import bounded, encoded
from holdfast.regions.coordinator import HistoryRecord, NotifyManagers
from holdfast.regions.driver.metrics import level
from holdfast.regions.driver.task_runner import TasksLostError
from holdfast.regions.files.folders import CheckpointFolders, orphan_reclaimer
from holdfast.regions.protocol import answers
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder, PipelinePlan
from holdfast.regions.runners.spark.worker import close_kept_operators, run_region_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = logging.getLogger(__name__)

POLL_MS: Final = 200

# Time until the first workers of a run have begun.
START_S: Final = 600

# The rows of a batch stay in memory until it is over, and the next batch needs as much. Memory that
# returns to the operating system in between has to be allocated and cleared again: a tenth of the
# CPU time of a batch. So the allocator of the C library keeps 128 MiB, also of blocks that it would
# map one by one. PyArrow uses it, too: its own allocator (mimalloc) reserves 1 GiB of addresses,
# which count for spark.executor.pyspark.memory, and keeps free memory for each thread. An arena
# reserves 64 MiB or more, by default one for each thread.
KEEP_FREED_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(128 * 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024 * 1024),
}

# Kills workers that compute for long without output, such as region tasks.
KILL_IDLE: Final = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
KILL_IDLE_DEFAULT: Final = "spark.python.worker.killOnIdleTimeout"

SUMMARY: Final = "partition int, regions int"

#: PySpark puts this between Java's words and those of a worker.
PYTHON_TRACEBACK: Final = "Traceback (most recent call last):"

_FAILED_TASK: Final = re.compile(r"Task (\d+) in stage")


class SparkRunner:
    """Runs attempts as Spark jobs on a cluster; RuntimeError without the Holdfast plugin."""

    def __init__(
        self,
        spark: SparkSession,
        plan: PipelinePlan,
        folders: CheckpointFolders,
        *,
        max_file_bytes: int,
    ) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        self._spark = spark
        self._context = spark.sparkContext
        kills = (spark.conf.get(key, "false") for key in (KILL_IDLE, KILL_IDLE_DEFAULT))
        self._kills_idle = "true" in kills
        # For rows outside of the stream; a batch's session is a copy, too.
        self._own = spark.newSession() if self._kills_idle else spark
        self._plan = plan
        self._folder = folders.segments.spark_name
        self._max_file_bytes = max_file_bytes
        self._warnings = SparingLog(LOG)
        self._workers_began = False
        jvm: Any = self._context._jvm
        try:
            driver = jvm.io.holdfast.spark.driver.HoldfastDriver.running()
            self._bridge = driver.regionalPipelines()
            self._bridge.open(plan.pipeline, self._folder)
        except (Py4JJavaError, PySparkException) as e:
            raise RuntimeError(f"cannot start: {_reason(e)}") from e
        # For later workers, unless the user has set them (spark.executorEnv).
        for variable, value in KEEP_FREED_MEMORY.items():
            self._context.environment.setdefault(variable, value)
        self._plan_value = self._context.broadcast(plan)
        # Files of lost executors whose content is to be written again.
        self._wasteful: list[str] = []
        self._reclaim_orphans, self._close_reclaimer = orphan_reclaimer(
            folders, plan.pipeline, self._bridge
        )

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[answers.Answer, None, None]:
        """See `TaskRunner`. A source is a DataFrame of one micro-batch."""
        rows = self._watched(source if source is not None else self._owed_rows(owed))
        # The order travels with the code of the task, which Spark sends once to every executor. A
        # broadcast would cost several calls into the JVM.
        task: Any = partial(
            run_region_task,
            self._plan_value,
            order.encoded(),
            folder=self._folder,
            max_file_bytes=self._max_file_bytes,
            owed=bool(owed),
        )
        job = _Job(
            self._spark,
            f"holdfast-{self._plan.pipeline}-{order.attempt}",
            lambda: rows.mapInArrow(task, SUMMARY).collect(),
            ended=lambda: self._bridge.wake(self._plan.pipeline),  # lets `_answers` see the end
        )
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

        Spark does not tell which worker keeps which operators, so tasks run in every free place:
        executors hand tasks to their idle workers in turn.
        """
        slices = self._context.defaultParallelism
        task: Any = partial(close_kept_operators, self._plan.pipeline, order.encoded())
        rows = self._watched(self._own.range(0, slices, 1, slices))
        name = f"holdfast-{self._plan.pipeline}-close"
        job = _Job(self._spark, name, lambda: rows.mapInArrow(task, SUMMARY).collect())
        job.stop(self._plan.options.region_timeout_ms / 1000)
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
        # Needed files are missing, damaged, or another application's.
        self._reclaim(retained, fatal=(CorruptSegmentError, FencedError, FileNotFoundError))

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        """See `TaskRunner`. The next batch finds missing files by itself."""
        self._reclaim(retained, fatal=())

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
        """Close the cluster's side, if it exists."""
        with ExitStack() as closing:
            closing.callback(_best_effort, self._plan_value.destroy)
            closing.callback(_best_effort, self._close_reclaimer)
            closing.callback(_best_effort, lambda: self._bridge.close(self._plan.pipeline))

    def _answers(self, job: _Job, order: AttemptOrder) -> Iterator[answers.Answer]:
        # Each task answers for its regions within region_timeout of its own beginning.
        options = self._plan.options
        patience_s = (options.region_timeout_ms + options.task_grace_ms) / 1000
        give_up = time.monotonic() + patience_s + (0 if self._workers_began else START_S)
        while True:
            ended = job.ended
            polled = self._bridge.poll(self._plan.pipeline, 0 if ended else POLL_MS)
            if polled is not None:
                for message in answers.messages_of(bytes(polled)):
                    run, decoded = answers.decode(message)
                    if run == self._plan.run:
                        yield from decoded
                        self._workers_began = True
                        give_up = time.monotonic() + patience_s
            elif ended:
                return
            elif order.lost is not None and time.monotonic() > give_up:
                job.cancel("tasks did not answer within region_timeout")

    def _watched(self, rows: Any) -> DataFrame:
        """Return rows whose idle tasks Spark does not end: region_timeout bounds them."""
        if self._kills_idle:
            rows.sparkSession.conf.set(KILL_IDLE, "false")
        return rows

    def _owed_rows(self, owed: Sequence[str]) -> DataFrame:
        slices = min(len(owed), self._context.defaultParallelism)
        rows = self._context.parallelize([(region,) for region in owed], slices)
        return self._own.createDataFrame(rows, "region string")

    def _reclaim(
        self, retained: Sequence[CheckpointMetadata], *, fatal: tuple[type[OSError], ...]
    ) -> None:
        try:
            # In this order: a term given in between is newer, and its files stop the clean-up.
            newest = self._bridge.newestTerm(self._folder)
            live = set(self._bridge.liveTerms(self._folder))
            done, wasteful = self._reclaim_orphans(retained, live_terms=live, newest_term=newest)
            if wasteful != self._wasteful:
                self._bridge.nameWasteful(self._plan.pipeline, "\n".join(wasteful))
                self._wasteful = wasteful
        except OSError as error:
            if isinstance(error, fatal):
                raise
            self._warnings.warn(
                "reclaim",
                "files of executors that are gone cannot be deleted yet, and the next checkpoint "
                f"tries again: {error}",
            )
        else:
            if done:
                LOG.info("files of executors that are gone: %s", done)


class _Job:
    """One Spark job on a thread of its own, in a job group of its own; calls `ended` at its end."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        work: Callable[[], object],
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        from pyspark import inheritable_thread_target

        self._context = spark.sparkContext
        self._group = f"{name}-{uuid.uuid4().hex[:8]}"
        self._name = name
        # True once no task of the job runs.
        self.ended = False
        self.cancelled = ""
        self.problem: BaseException | None = None

        def run() -> None:
            try:
                self._context.setJobGroup(self._group, name, interruptOnCancel=True)
                work()
            except BaseException as e:
                self.problem = e
            finally:
                self.ended = True
                _best_effort(ended)

        target = inheritable_thread_target(spark)(run)
        self._thread = threading.Thread(target=target, name=name, daemon=True)
        self._thread.start()

    def cancel(self, reason: str) -> None:
        """End its tasks."""
        if not self.cancelled:
            self.cancelled = reason
            LOG.warning("%s is cancelled: %s", self._name, reason)
            _best_effort(lambda: self._context.cancelJobGroup(self._group))

    def stop(self, seconds: float = 0) -> None:
        """Wait until it ended; cancels it after some seconds."""
        self._thread.join(seconds)
        if not self.ended:
            self.cancel("its answers are not waited for any more")
        self._thread.join()


def run_on_a_worker(spark: SparkSession, compare: Compare, timeout_s: float) -> Comparison:
    """Compare declared state in a Python worker, see `RunCompare`."""
    found: list[Comparison] = []

    def work() -> None:
        rows = spark.sparkContext.parallelize([None], 1)
        found.extend(rows.map(lambda _: compare()).collect())

    job = _Job(spark, "holdfast-declared-state", work)
    job.stop(timeout_s)
    if job.problem is not None:
        raise RuntimeError(job.cancelled or _reason(job.problem)) from job.problem
    return found[0]


def _best_effort(call: Callable[[], object]) -> None:
    """Make a call into the JVM that is useless once the JVM is gone."""
    try:
        call()
    except Exception as e:
        LOG.warning("a call to the JVM of the driver failed: %s", _reason(e))


def _partition(problem: BaseException) -> int | None:
    """Return the partition of the task that failed a job: Spark only has it in words."""
    found = _FAILED_TASK.search(str(problem))
    return int(found[1]) if found is not None else None


def _reason(problem: BaseException) -> str:
    """Return the error in a line, in Java's words if it happened there.

    After the failure of a Python worker, Java's words end with its traceback, whose last line has
    the reason, such as a module that it could not import.
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
