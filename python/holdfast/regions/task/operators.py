"""Operators, which users write: they take Arrow batches, and their state survives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from holdfast.regions.base.callbacks import called
from holdfast.regions.task.metrics import MetricGroup
from holdfast.regions.task.side_rows import SideRows

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from holdfast.regions.coordinator import CheckpointInfo
    from holdfast.regions.state.registry import StateRegistry

# The possible results of an operator.
Batches: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch | pa.Table] | None"

#: Methods that put out rows: they may yield them.
PUT_OUT: Final = ("process", "on_watermark", "on_timers", "on_end_of_data", "on_retire")


def _no_events(event: bytes) -> None:
    raise RuntimeError("send_event() is for operators in a pipeline that runs")


def _no_end() -> None:
    raise RuntimeError("finish() is for operators in a pipeline that runs")


@dataclass(frozen=True)
class OperatorContext:
    """The surroundings of an operator, given to it when it opens.

    Parameters
    ----------
    region : str
        Name of the region whose rows this instance sees.
    operator : str
        Name of the operator in the pipeline.
    instance, parallelism : int
        Index of this instance in the region, from 0, and how many instances the operator has there.
    state : StateRegistry
        Declares states, which are in every checkpoint.
    xp : module
        NumPy, or CuPy for a pipeline on a GPU. An operator that uses only this module runs on both.
    """

    region: str
    operator: str
    instance: int
    parallelism: int
    state: StateRegistry
    xp: Any
    metrics: MetricGroup = field(default_factory=MetricGroup)
    sides: SideRows = field(default_factory=SideRows, repr=False)
    _send_event: Callable[[bytes], None] = field(default=_no_events, repr=False)
    _finish: Callable[[], None] = field(default=_no_end, repr=False)

    def emit(self, side: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Give rows to a side output, which `RegionalPipeline.side` declares.

        The rows are published once, with the checkpoint that has the state of this moment. They
        have the declared schema, or are cast as in `apply`. Allowed in `Operator.process`,
        `Operator.on_watermark`, `Operator.on_event` and `Operator.on_end_of_data`.

        Raises
        ------
        ValueError
            If there is no such side output.
        TypeError
            If these are no rows, or they do not fit its schema.
        RuntimeError
            If it is called at another time.
        """
        self.sides.emit(side, rows)

    def reject(self, rows: pa.RecordBatch | pa.Table, reason: str | Sequence[str]) -> None:
        """Set rows aside that the operator cannot process, such as some of a batch.

        The side output that `RegionalPipeline.on_bad_row` names takes them. `reason` is one text
        for all rows, or a sequence with one for each. The operator continues without the rows.

        Raises
        ------
        ValueError
            If the pipeline has no `on_bad_row`: the region fails, and its rows are processed again.
        TypeError, RuntimeError
            In the cases in which `emit` raises them.
        """
        self.sides.reject(rows, reason)

    def send_event(self, event: bytes) -> None:
        """Send an event to the coordinator of the operator.

        The coordinator's ``handle_event`` receives it once, when the checkpoint has completed that
        has the state of this call. Events of one instance keep their order. Flink's
        ``OperatorEventGateway.sendEventToCoordinator``.

        Raises
        ------
        TypeError
            If it is not of the type bytes.
        ValueError
            If it has more than 1 MiB, or the region sends more than 16 MiB in one batch.
        RuntimeError
            If the operator has no coordinator, or it is called at another time than `emit` may be:
            other methods may be called any number of times.
        """
        self._send_event(event)

    def processing_time(self) -> datetime:
        """Return the time at which this batch began: in UTC, by the driver's clock.

        It is the same in all calls of a batch, in all regions, and wherever tasks run again. A
        region that fell back processes its rows again in a later batch, with that batch's time. Use
        this time instead of the wall clock, which `Operator.region_safe` excludes.
        """
        return self.state.times.attempt

    def finish(self) -> None:
        """End the data of this region; the others continue (FLIP-147).

        Takes effect after the rows of the batch. All operators of the region flush
        (`Operator.on_end_of_data`). The checkpoint of the batch publishes their rows and holds the
        region as finished, also after a restart. The option ``on_rows_after_finish`` decides about
        later rows. If the region fails in this batch, its data has not ended: its rows are
        processed again, and so is this call.

        Raises a RuntimeError if it is called at another time than `emit` may be, and a StateError
        if the operator has union or broadcast state: regions with shared state end together.
        """
        self._finish()


class CheckpointListener:
    """Learns how checkpoints end. Every operator is one, so override what you need.

    A region learns of an attempt with its next batch, before the rows, or at the end of data. A
    notice is best effort: it may be lost or repeated. So it may release what is not needed any
    more, and must not decide what the state becomes. A coordinator has
    `OperatorCoordinator.checkpoint_complete` and ``checkpoint_aborted`` instead, for all regions at
    once. Flink's ``CheckpointListener``, with the two notices of FLIP-600 for regional checkpoints.
    """

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        """Learn that a checkpoint with this region's state completed.

        Best effort, and any number of times. Flink's ``notifyCheckpointComplete``.
        """

    def on_regional_checkpoint_completed(self, checkpoint: int, info: CheckpointInfo) -> None:
        """Learn that a checkpoint completed, which regions took part, and which fell back.

        By default calls `on_checkpoint_completed`. FLIP-600's ``notifyRegionalCheckpointComplete``.
        """
        called(self.on_checkpoint_completed, checkpoint)

    def on_checkpoint_fallback(self, checkpoint: int, origin: int) -> None:
        """Learn that a checkpoint completed with this region's state of `origin`.

        Neither completed nor aborted: the next checkpoint that this region contributes to covers
        the work since `origin`. FLIP-600's ``notifyRegionalCheckpointFallback``.
        """

    def on_checkpoint_aborted(self, checkpoint: int) -> None:
        """Learn that an attempt ended without a checkpoint. Flink's ``notifyCheckpointAborted``."""


class Operator(CheckpointListener):
    """One step of a regional pipeline, with one instance per region.

    An instance sees the rows of one region, in the order of the source. Its state reflects each row
    once: when a region fails, its state goes back to the last checkpoint that the region
    contributed to, and the rows since then are processed again.

    An instance lives on one thread, which calls all of its methods, from `open` to `close`. It also
    has its own context variables, such as the precision of `decimal` and NumPy's `seterr`. Each
    region of a process has a thread; more than 32 regions share threads.

    Subclasses override `open` and `process`, and set `region_safe`. Methods that put out rows may
    be generators. All others return None, and no method is ``async``.

    Attributes
    ----------
    region_safe : bool
        The author's word that the state of an instance depends only on the rows that its region
        consumed, the events between them, and `OperatorContext.processing_time`: not on other
        regions, the wall clock, or how often snapshots are taken. Only then may a checkpoint
        combine states of different age (FLIP-600, safety predicate). Pipelines with an operator
        that does not say so run with ``max_consecutive_failures=0``.
    row_independent : bool
        The author's word that an exception of `process` is the fault of single rows: the same rows
        fail each time, whatever other rows are with them. If all operators say so and the pipeline
        has `RegionalPipeline.on_bad_row`, a failed region finds these rows, and continues without
        them.

    Examples
    --------
    >>> class RowCount(hf.Operator):
    ...     region_safe = True
    ...
    ...     def open(self, ctx):
    ...         self.rows = ctx.state.array("rows", shape=(1,), dtype="int64")
    ...
    ...     def process(self, batch):
    ...         self.rows[0] += batch.num_rows
    ...         return batch
    """

    region_safe: ClassVar[bool] = False
    row_independent: ClassVar[bool] = False

    def open(self, ctx: OperatorContext) -> None:
        """Declare state and metrics. Called once per instance, before the first row.

        After a restart or a failure of the region a new instance is opened, and its states receive
        the content of the restored checkpoint. A start from a checkpoint with state first opens and
        closes some instances, without large arrays, to compare their states with the checkpoint.
        """

    def process(self, batch: pa.RecordBatch) -> Batches:
        """Take in some rows of the region; return, or yield, rows for the next operator.

        `batch` is never empty, and its boundaries mean nothing. Returns a pyarrow.RecordBatch or
        Table, an iterable of these, or None, with the schema given to ``apply``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define process(batch)")

    def on_watermark(self, watermark: datetime) -> Batches:
        """Learn that no row on time is older than this; return rows that waited for it.

        Called for operators after `RegionalPipeline.with_watermark`, in each batch with rows of the
        region, after these rows. A watermark may repeat, but never goes back. No later row has an
        event time before it: a window that ends at or before the watermark is complete. Flink's
        ``processWatermark``.

        The watermark is in UTC if the event times are instants, else without a time zone. Rows are
        returned as by `process`.
        """
        return None

    def on_timers(self, name: str, due: pa.RecordBatch) -> Batches:
        """Take timers that are due; return rows as `process` does.

        Timers in event time are due when the watermark of the region has passed them, and timers in
        processing time when a batch begins after their time. Called after the rows of a batch,
        before `on_watermark`, and again for timers that it sets and that are due as well. Timers in
        processing time are first, and calls are in order of time, over all names. A timer that is
        cancelled before it is in `due` does not fire. When data ends, all timers are due that are
        set then. Flink's ``onTimer``, for many keys at once.

        Parameters
        ----------
        name : str
            The argument of ``ctx.state.timers``.
        due : pyarrow.RecordBatch
            The column ``time``, in rising order, in UTC, and the columns of the key. Never empty.
            Its boundaries mean nothing. These timers are not set any more.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_timers(name, due)")

    def on_event(self, event: bytes) -> None:
        """Take an event, the argument of ``gateway.send``; see `OperatorCoordinator`.

        It arrives between two batches: all rows of earlier batches are through all operators
        of the region, and no row of the batch for which it was sent is. The state reflects each
        event once, like each row: a region that falls back receives its events again, between the
        same rows. Flink's ``OperatorEventHandler.handleOperatorEvent``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_event(event)")

    def on_end_of_data(self) -> Batches:
        """Return the last rows, as `process` does, because no row will ever follow.

        Called when data ends: after the last row of a pipeline with the option ``bounded``, or by
        `LocalQuery.end_of_data`. The last checkpoint has the state after this call, and the
        instance is closed when that checkpoint has completed. If it does not complete, another
        instance flushes again, from the state before.
        """
        return None

    def on_retire(self, ctx: OperatorContext) -> Batches:
        """Return the last rows of a region that had none for ``retire_idle``, as `process` does.

        Called once, with the context of `open`, and the instance is closed. The rows are published
        with the checkpoint that drops the region and its state. If the region fails here, or that
        checkpoint does not complete, the region remains unchanged.
        """
        return None

    def close(self) -> None:
        """Close connections and files. The instance is not used again.

        Called at the end of data, when the region has failed, and when `LocalQuery` is closed. A
        worker process that Spark kills, such as an idle one, closes nothing.
        """
