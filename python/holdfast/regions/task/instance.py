"""One opened operator with its state, which a region's graph runs."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from holdfast._core import SegmentRef
from holdfast.regions.base.callbacks import called
from holdfast.regions.base.problem import AtWork
from holdfast.regions.base.saved import LeaseOf, SavedState, StateError
from holdfast.regions.coordinator import CheckpointInfo
from holdfast.regions.coordinator.operator_coordinator import MAX_EVENTS_BYTES, require_event
from holdfast.regions.protocol.figures import OperatorFigures, encode
from holdfast.regions.protocol.orders import EndedAttempt, StagePlan
from holdfast.regions.state.kinds.kind import FrozenState
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.tables.timers import DueTimers
from holdfast.regions.state.tables.times import AttemptTimes
from holdfast.regions.task.fitting import batches_of, fitted, type_name
from holdfast.regions.task.metrics import Meter
from holdfast.regions.task.operators import Batches, Operator, OperatorContext
from holdfast.regions.task.own_memory import OwnMemory
from holdfast.regions.task.shared_states import SHARED
from holdfast.regions.task.side_rows import AT_WORK, SideRows
from holdfast.regions.task.watermark import Watermark

if TYPE_CHECKING:
    from holdfast._core import TableSession

LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

OpenTableOf: TypeAlias = (
    "Callable[[str, str, Sequence[str], Sequence[str], str | None], TableSession]"
)
"""Like `OpenTable`, for an operator's instance."""

_NO_MORE: Final = object()


class OperatorInstance(AtWork):
    """An operator that was opened for one region.

    One thread makes all calls, from the constructor to `close`. Context variables, such as the
    precision of `decimal` and NumPy's treatment of errors, are the operator's own.

    - `operator`: not opened yet; only this instance uses it, and `sides`.
    - `saved`: its states in the restored checkpoint.
    - `tables`: opens a table of an operator's instance for the current attempt.
    - `finishing`: it has ended the data of its region.
    - `retiring`: its region is retired at the end of this attempt's data; its state is dropped.

    Raises a StateError if its declared states do not fit the checkpoint, and errors of ``open``.
    """

    def __init__(
        self,
        stage: StagePlan,
        operator: Operator,
        *,
        region: str,
        index: int,
        saved: Iterable[SavedState],
        xp: Any,
        sides: SideRows,
        drop_undeclared: bool,
        tables: OpenTableOf,
        times: AttemptTimes,
    ) -> None:
        self.stage = stage
        self._operator = operator
        self.where = f"operator {stage.name!r} in region {region!r}"
        self._state = StateRegistry(
            xp,
            saved,
            owner=self.where,
            instance=index,
            parallelism=stage.parallelism,
            route_by=stage.route_by,
            drop_undeclared=drop_undeclared,
            open_table=partial(tables, stage.instance_name(index)),
            times=times,
        )
        self._lease: LeaseOf = _nothing_granted
        self._memory = OwnMemory(stage.schema)
        self.meter = Meter()
        self.finishing = False
        self.retiring = False
        self.sides = sides
        self._sent: list[bytes] = []
        self._sent_bytes = 0
        self._context = contextvars.Context()
        self._operator_context = context = OperatorContext(
            region=region,
            operator=stage.name,
            instance=index,
            parallelism=stage.parallelism,
            state=self._state,
            xp=xp,
            metrics=self.meter.own,
            sides=sides,
            _finish=self._finish,
            _send_event=self._send_event,
        )
        try:
            self._context.run(called, operator.open, context)
            self._state.check_restored()
            self._bindings = self._state.bindings(operator)
            if self._state.event_time and not stage.has_watermark:
                raise StateError(
                    f"{self.where}: state {self._state.event_time[0]!r} follows a watermark, and "
                    "there is none: call with_watermark() before apply()"
                )
            if operator.region_safe and (shared := self._state.kinds & SHARED):
                raise StateError(
                    f"{self.where} declares region_safe and has {' and '.join(sorted(shared))} "
                    "state, which regions have to agree on: take region_safe away, and start with "
                    "max_consecutive_failures=0"
                )
        except BaseException:
            self._let_go()
            raise

    @property
    def operator_name(self) -> str:
        """See `AtWork`."""
        return self.stage.name

    @property
    def name(self) -> str:
        """Name under which its state is kept."""
        return self.stage.instance_name(self._operator_context.instance)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Run the operator on some rows; yields batches with its schema, none empty."""
        self.meter.rows_in += batch.num_rows
        self.sides.given = batch
        produced = self._timed(partial(self._operator.process, batch))
        return self._checked("process", produced, given=batch)

    @property
    def hears_time(self) -> bool:
        """True if the operator has timers, or there is a watermark and it does something at it."""
        return bool(self._state.timers_of) or (
            self.stage.has_watermark
            and (
                type(self._operator).on_watermark is not Operator.on_watermark
                or bool(self._state.event_time)
            )
        )

    def watermark(self) -> datetime | None:
        """Return the watermark of the region, if the operator is the one that has it."""
        return self._operator.now() if isinstance(self._operator, Watermark) else None

    def rest(self, ms: int) -> None:
        """Let the watermark of a region without rows advance, if the operator has it."""
        if isinstance(self._operator, Watermark):
            self._operator.rest(ms)

    def on_time(self, watermark: datetime | None) -> Iterator[pa.RecordBatch]:
        """Run the operator on its timers that are due, and on the watermark of the region."""
        self.sides.given = None
        times = self._state.times = replace(self._state.times, watermark=watermark)
        timers = DueTimers(self._state.timers_of.items(), times)
        yield from self._fire(timers)
        if watermark is None:
            return
        produced = self._timed(partial(self._operator.on_watermark, watermark))
        yield from self._checked("on_watermark", produced, given=None)
        yield from self._fire(timers)

    def _fire(self, timers: DueTimers) -> Iterator[pa.RecordBatch]:
        """Run the operator on timers that are due, including ones that it sets now."""
        for name, due in timers.take():
            produced = self._timed(partial(self._operator.on_timers, name, due))
            yield from self._checked("on_timers", produced, given=None)

    def end_of_data(self) -> Iterator[pa.RecordBatch]:
        """Flush the rows that the operator holds back, after all timers that are set."""
        self.sides.given = None
        yield from self._fire(DueTimers(self._state.timers_of.items(), None))
        call: Callable[..., Batches] = self._operator.on_end_of_data
        if self.retiring:
            call = partial(self._operator.on_retire, self._operator_context)
        produced = self._timed(call)
        name = "on_retire" if self.retiring else "on_end_of_data"
        yield from self._checked(name, produced, given=None)

    def on_event(self, event: bytes) -> None:
        """Run the operator on an event of its coordinator."""
        self._timed(partial(called, self._operator.on_event, event))

    def begin(self, lease: LeaseOf) -> None:
        """Begin an attempt: its snapshot may refer to older segments that `lease` grants."""
        self._lease = lease
        self._sent, self._sent_bytes = [], 0

    @property
    def sent(self) -> Sequence[bytes]:
        """Events to the coordinator in this attempt, in order."""
        return self._sent

    def snapshot(self, checkpoint: int) -> Sequence[FrozenState]:
        """Take the current state; the operator waits only for this.

        Raises a StateError if a state was replaced, or has something that cannot be kept.
        """
        if self.retiring:
            return ()
        self._bindings.check(self.where)
        return self._state.freeze(self._lease)

    def tell(self, ended: EndedAttempt, region: str, took_part: frozenset[str]) -> None:
        """Notify the operator of an attempt's end (R40 to R42).

        `took_part` are the regions whose new state the latest checkpoint has.
        """
        operator, run = self._operator, self._context.run
        if ended.outcome == "aborted":
            run(called, operator.on_checkpoint_aborted, ended.attempt)
        elif region in ended.fallbacks:
            origin = ended.fallbacks[region]
            run(called, operator.on_checkpoint_fallback, ended.attempt, origin)
        else:
            info = CheckpointInfo(
                checkpoint=ended.attempt, took_part=took_part, fallbacks=ended.fallbacks
            )
            run(called, operator.on_regional_checkpoint_completed, ended.attempt, info)

    def open_tables(self, tables: OpenTableOf, times: AttemptTimes) -> None:
        """Open the tables of a kept operator for another attempt."""
        self._state.begin(partial(tables, self.name), times)

    def close(self) -> None:
        """Close the operator."""
        try:
            self._context.run(called, self._operator.close)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Drop all references that lead back here, as an operator's do by its context.

        Operators, their arrays and their threads are then freed without Python's collector.
        """
        self._state.close()
        self._lease = _nothing_granted
        for name in ("_operator", "_operator_context", "_bindings"):
            self.__dict__.pop(name, None)

    def _finish(self) -> None:
        if not self.sides.open:
            raise RuntimeError(f"{self.where} may call finish() in {AT_WORK}")
        if shared := self._state.kinds & SHARED:
            raise StateError(
                f"{self.where} called finish(), and has {' and '.join(sorted(shared))} state: "
                "regions with such state end together, when all data ends"
            )
        self.finishing = True

    def _timed(self, work: Callable[[], T]) -> T:
        """Let the operator work, and measure how long it takes."""
        begun = time.perf_counter_ns()
        self.sides.open = True
        try:
            return self._context.run(work)
        finally:
            self.sides.open = False
            self.meter.busy_ns += time.perf_counter_ns() - begun

    def _send_event(self, event: bytes) -> None:
        if not self.stage.coordinated:
            raise RuntimeError(
                f"{self.where} has no coordinator to send an event to: give apply(..., "
                "coordinator=...)"
            )
        if not self.sides.open:
            raise RuntimeError(
                f"{self.where} may send events in {AT_WORK}: open, close and notices of "
                "checkpoints may come any number of times, and so would their events"
            )
        require_event(event, f"an event of {self.where}")
        self._sent_bytes += len(event)
        if self._sent_bytes > MAX_EVENTS_BYTES:
            raise ValueError(
                f"{self.where} sent more than {MAX_EVENTS_BYTES} bytes of events in one batch: put "
                "out rows instead"
            )
        self._sent.append(event)

    def _checked(
        self, call: str, produced: Batches, *, given: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        if produced is None:
            return
        # An operator that yields works while it is asked for the next batch.
        step: partial[Any] = partial(next, self._put_out(call, produced), _NO_MORE)
        while (item := self._timed(step)) is not _NO_MORE:
            if (batches := batches_of(item)) is None:
                raise TypeError(self._no_rows(call, produced, item))
            for batch in batches:
                try:
                    rows = fitted(batch, self.stage.schema)
                except TypeError as e:
                    unfit = "put out rows that do not fit the schema given to apply()"
                    raise TypeError(f"{self.where} {unfit}: {e}") from None
                if rows.num_rows:
                    self.meter.rows_out += rows.num_rows
                    # Before the operator continues: it may use the memory again.
                    yield self._memory.of(rows, given=given)

    def _put_out(self, call: str, produced: Any) -> Iterator[Any]:
        """Iterate over the result of a call, unless it is rows in another form."""
        if batches_of(produced) is not None:
            return iter((produced,))
        # A data frame iterates over the names of its columns.
        if (
            not isinstance(produced, Iterable)
            or isinstance(produced, (str, bytes, Mapping))
            or hasattr(produced, "__dataframe__")
        ):
            raise TypeError(self._no_rows(call, produced, produced))
        return iter(produced)

    def _no_rows(self, call: str, produced: object, item: object) -> str:
        if isinstance(produced, Iterator):
            found = f"yielded {type_name(item)}"
        elif isinstance(produced, (list, tuple)):
            found = f"returned a {type_name(produced)} with {type_name(item)} in it"
        else:
            found = f"returned {type_name(produced)}"
        return (
            f"{self.where}: {call}() {found}; expected pyarrow.RecordBatch, pyarrow.Table, an "
            "iterable of these, or None"
        )


Instances = tuple[tuple[OperatorInstance, ...], ...]
"""Instances of a region: by operator, then by index."""


def _nothing_granted(state: str, refs: Sequence[SegmentRef]) -> Sequence[bool]:
    return [False] * len(refs)


def tell_instances(
    instances: Instances,
    ended: Sequence[EndedAttempt],
    region: str,
    took_part: frozenset[str],
) -> None:
    """Notify operators that are not used again; failures are only logged."""

    def tell(instance: OperatorInstance) -> None:
        for attempt in ended:
            instance.tell(attempt, region, took_part)

    _each(instances, tell, "when it was notified")


def figures_of(instances: Instances) -> bytes:
    """Return figures since the last call, summed by operator, encoded. Operators may be at work."""
    figures = []
    for stage in instances:
        of_stage = OperatorFigures()
        for instance in stage:
            of_stage.add(instance.meter.take())
        figures.append(of_stage)
    return encode(figures)


def close_instances(instances: Instances) -> None:
    """Close operators that are not used again; failures are only logged."""
    _each(instances, lambda instance: instance.close(), "to close")


def _each(instances: Instances, call: Callable[[OperatorInstance], None], doing: str) -> None:
    for instance in chain.from_iterable(instances):
        try:
            call(instance)
        except BaseException:
            # Also sys.exit(): the thread is not the operator's, and its region has to answer.
            LOG.warning("an %s failed %s", instance.where, doing, exc_info=True)
