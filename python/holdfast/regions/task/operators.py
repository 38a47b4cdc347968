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
    instance : int
        Index of this instance among the operator's parallel instances in the region, from 0.
    parallelism : int
        Number of these instances.
    state : StateRegistry
        Declares states, which are in every checkpoint.
    xp : module
        Array module: NumPy, or CuPy for a pipeline that runs on a GPU. An operator that uses only
        this one runs on both.
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

        They are published with the checkpoint that has the state of this moment, each once. Allowed
        in `Operator.process`, `Operator.on_watermark`, `Operator.on_event` and
        `Operator.on_end_of_data`.

        Parameters
        ----------
        side : str
            Name of the side output.
        rows : pyarrow.RecordBatch or pyarrow.Table
            Rows with the schema that was declared; cast as those of `apply` are.

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
        """Set rows aside that the operator cannot process.

        The side output that `RegionalPipeline.on_bad_row` names takes them, with their reason. The
        operator goes on without them.

        Parameters
        ----------
        rows : pyarrow.RecordBatch or pyarrow.Table
            Rows, such as some of those that `Operator.process` was given.
        reason : str or sequence of str
            Their reason, or one for each row.

        Raises
        ------
        ValueError
            If the pipeline has no `on_bad_row`: the region fails, and its rows come again.
        TypeError, RuntimeError
            In the same cases as `emit`.
        """
        self.sides.reject(rows, reason)

    def send_event(self, event: bytes) -> None:
        """Send an event to the coordinator of the operator.

        The coordinator's ``handle_event`` gets it once, when the checkpoint has completed that has
        the state of this call. Events of one instance keep their order. Flink's
        ``OperatorEventGateway.sendEventToCoordinator``.

        Parameters
        ----------
        event : bytes
            At most 1 MiB.

        Raises
        ------
        TypeError
            If it is not of the type bytes.
        ValueError
            If it is too large, or the region sends more than 16 MiB in one batch.
        RuntimeError
            If the operator has no coordinator, or it is called at another time than `emit` may be:
            other methods may be called any number of times.
        """
        self._send_event(event)

    def processing_time(self) -> datetime:
        """Return the time at which this batch began: in UTC, by the driver's clock.

        It is the same in all calls of a batch, in all regions, and wherever tasks run again. A
        region that fell back gets its rows again in a later batch, with the time of that one. Take
        this time instead of the wall clock, which `Operator.region_safe` excludes.
        """
        return self.state.times.attempt

    def finish(self) -> None:
        """End the data of this region; the others go on (FLIP-147).

        Takes effect behind the rows of the batch. All operators of the region flush
        (`Operator.on_end_of_data`), and the checkpoint of the batch publishes what they put out and
        holds the region as finished. It stays finished after a restart. The option
        ``on_rows_after_finish`` says what becomes of rows that come later. If the region fails in
        this batch, its data has not ended: its rows come again, and with them this call.

        Raises
        ------
        RuntimeError
            If it is called at another time than `emit` may be.
        StateError
            If the operator has union or broadcast state: regions with such state end together.
        """
        self._finish()


class CheckpointListener:
    """Hears how checkpoints end. Every operator is one, so override what you need.

    A region hears of an attempt with its next batch, in front of the rows, or at the end of data. A
    notice is best effort: it may be lost, or come more than once. So it may let go of what is not
    needed any more, and must not decide what the state becomes. A coordinator has
    `OperatorCoordinator.checkpoint_complete` and ``checkpoint_aborted`` instead, which hear of all
    regions at once.

    The counterpart in Flink is ``CheckpointListener``, with the two notices of FLIP-600 for
    regional checkpoints.
    """

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        """Learn that a checkpoint with this region's state completed.

        Best effort, and any number of times. Flink's ``notifyCheckpointComplete``.
        """

    def on_regional_checkpoint_completed(self, checkpoint: int, info: CheckpointInfo) -> None:
        """Learn the same, which regions took part, and which fell back.

        By default it calls `on_checkpoint_completed`. FLIP-600's
        ``notifyRegionalCheckpointComplete``.
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
    contributed to, and the rows since then come again.

    An instance lives on one thread, which calls all of its methods, from `open` to `close`. It also
    has context variables of its own, such as the precision of `decimal` and NumPy's `seterr`.
    Regions of a process have a thread each, and share threads if they are more than 32.

    Subclasses override `open` and `process`, and set `region_safe`. Methods that put out rows may
    be generators. All others return None, and no method is ``async``.

    Attributes
    ----------
    region_safe : bool
        The author's word that the state of an instance depends on nothing but the rows that its
        region consumed, the events between them, and `OperatorContext.processing_time`: not on
        other regions, not on the wall clock, not on how often snapshots are taken. Only then may a
        checkpoint combine states of different age (FLIP-600, safety predicate). Pipelines with an
        operator that does not say so run with
        ``max_consecutive_failures=0``.
    row_independent : bool
        The author's word that an exception of `process` is the fault of single rows: the same rows
        fail each time, whatever other rows come with them. If all operators say so and the pipeline
        has `RegionalPipeline.on_bad_row`, a region that fails finds these rows, and goes on without
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

        After a restart or a failure of the region a new instance is opened, and its states get the
        content of the checkpoint it restores. A start from a checkpoint with state opens some
        instances before, without large arrays, and closes them again, to compare their states with
        those of the checkpoint.
        """

    def process(self, batch: pa.RecordBatch) -> Batches:
        """Take in some rows of the region; return, or yield, rows for the next operator.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Never empty. Its boundaries mean nothing.

        Returns
        -------
        pyarrow.RecordBatch, pyarrow.Table, iterable of these, or None
            Rows with the schema given to ``apply``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define process(batch)")

    def on_watermark(self, watermark: datetime) -> Batches:
        """Learn that no row on time is older than this; return rows that were waiting for it.

        Called for operators behind `RegionalPipeline.with_watermark`, in each batch with rows of
        the region, behind these rows. The same watermark may come again. It never goes back. No row
        that comes later has an event time before it: a window that ends at the watermark, or
        earlier, is complete. Flink's ``processWatermark``.

        Parameters
        ----------
        watermark : datetime.datetime
            In UTC if the event times are instants, else without a time zone.

        Returns
        -------
        pyarrow.RecordBatch, pyarrow.Table, iterable of these, or None
            The same as from `process`.
        """
        return None

    def on_timers(self, name: str, due: pa.RecordBatch) -> Batches:
        """Take timers that are due; return rows.

        Timers in event time are due when the watermark of the region has passed them, and timers in
        processing time when a batch begins after their time. Called behind the rows of a batch,
        before `on_watermark`, and again for timers that it sets and that are due as well. Timers in
        processing time come first, and each call is the next one in order of time, over all names.
        A timer that is cancelled before it is in `due` does not fire. When data ends, all timers
        are due that are set then. Flink's ``onTimer``, for many keys at once.

        Parameters
        ----------
        name : str
            The argument of ``ctx.state.timers``.
        due : pyarrow.RecordBatch
            The column ``time``, in rising order, in UTC, and the columns of the key. Never empty.
            Its boundaries mean nothing. These timers are not set any more.

        Returns
        -------
        pyarrow.RecordBatch, pyarrow.Table, iterable of these, or None
            The same as from `process`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_timers(name, due)")

    def on_event(self, event: bytes) -> None:
        """Take an event of the operator's coordinator, see `OperatorCoordinator`.

        It comes between two batches of rows: all rows of earlier batches are through all operators
        of the region, and none of the batch for which it was sent is. The state reflects each event
        once, as it reflects each row: a region that falls back gets its events again, between the
        same rows. Flink's ``OperatorEventHandler.handleOperatorEvent``.

        Parameters
        ----------
        event : bytes
            The argument of ``gateway.send``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define on_event(event)")

    def on_end_of_data(self) -> Batches:
        """Return the last rows, because no row will ever follow.

        Called when data ends: after the last row of a pipeline with the option ``bounded``, or by
        `LocalQuery.end_of_data`. The last checkpoint holds the state as it is afterwards, and the
        instance is closed when that checkpoint has completed. If it does not complete, another
        instance flushes once more, from the state before.

        Returns
        -------
        pyarrow.RecordBatch, pyarrow.Table, iterable of these, or None
            The same as from `process`.
        """
        return None

    def on_retire(self, ctx: OperatorContext) -> Batches:
        """Return the last rows of a region that had none for ``retire_idle``.

        Called once, and the instance is closed. They are published with the checkpoint that drops
        the region and its state. If the region fails here, or that checkpoint does not complete,
        the region stays as it was.

        Parameters
        ----------
        ctx : OperatorContext
            The same as in `open`.

        Returns
        -------
        pyarrow.RecordBatch, pyarrow.Table, iterable of these, or None
            The same as from `process`.
        """
        return None

    def close(self) -> None:
        """Close connections and files. The instance is not used again.

        Called at the end of data, when the region has failed, and when `LocalQuery` is closed. A
        worker process that Spark kills closes nothing: an idle one, for example.
        """
