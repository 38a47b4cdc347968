"""One opened operator with its state: what a stage of a region's graph runs."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast._core import SegmentRef
from holdfast.regions.base.problem import AtWork
from holdfast.regions.coordinator import CheckpointInfo
from holdfast.regions.protocol.figures import OperatorFigures, encode
from holdfast.regions.protocol.orders import EndedAttempt, StagePlan
from holdfast.regions.state.registry import FrozenState, StateRegistry
from holdfast.regions.state.saved import LeaseOf, SavedState, StateError
from holdfast.regions.task.fitting import fitted
from holdfast.regions.task.metrics import Meter
from holdfast.regions.task.operators import Batches, Operator, OperatorContext
from holdfast.regions.task.own_memory import OwnMemory
from holdfast.regions.task.shared_states import SHARED

if TYPE_CHECKING:
    import pyarrow as pa


LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

_NO_MORE: Final = object()


class OperatorInstance(AtWork):
    """An operator that was opened for one region.

    Parameters
    ----------
    stage : StagePlan
        What it is an instance of.
    operator : Operator
        Fresh, not opened; this instance alone uses it.
    region : str
        Name of its region.
    index : int
        Its index among the stage's instances.
    saved : iterable of SavedState
        Its states in the checkpoint that is restored.
    xp : module
        Array module.

    Raises
    ------
    StateError
        If what it declares does not fit what the checkpoint has.
    Exception
        Whatever the operator's ``open`` raises.
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
    ) -> None:
        self.stage = stage
        self.operator_name = stage.name
        self.name = stage.instance_name(index)
        self._operator = operator
        self.where = f"operator {stage.name!r} in region {region!r}"
        self._state = StateRegistry(
            xp, saved, owner=self.where, instance=index, parallelism=stage.parallelism
        )
        self._lease: LeaseOf = _nothing_granted
        self._memory = OwnMemory(stage.schema)
        self._meter = Meter()
        context = OperatorContext(
            region=region,
            operator=stage.name,
            instance=index,
            parallelism=stage.parallelism,
            state=self._state,
            xp=xp,
            metrics=self._meter.own,
        )
        operator.open(context)
        self._state.check_restored()
        self._bindings = self._state.bindings(operator)
        if operator.region_safe and (shared := self._state.kinds & SHARED):
            raise StateError(
                f"{self.where} declares region_safe and has {' and '.join(sorted(shared))} state, "
                "which regions have to agree on: take region_safe away, and start with "
                "regional=False"
            )

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Run the operator on some rows; yields batches with the stage's schema, none empty."""
        self._meter.rows_in += batch.num_rows
        return self._checked(self._timed(partial(self._operator.process, batch)), given=batch)

    def end_of_data(self) -> Iterator[pa.RecordBatch]:
        """Flush what the operator holds back."""
        return self._checked(self._timed(self._operator.on_end_of_data), given=None)

    def begin(self, lease: LeaseOf) -> None:
        """Begin an attempt: its snapshot may refer to the older segments that `lease` grants."""
        self._lease = lease

    def snapshot(self, checkpoint: int) -> Sequence[FrozenState]:
        """Take the state as it is. The operator waits for this and nothing else.

        Raises
        ------
        StateError
            If the operator replaced a state, or one holds something that cannot be kept.
        """
        self._bindings.check(self.where)
        return self._state.freeze(self._lease)

    def tell(self, ended: EndedAttempt, region: str) -> None:
        """Notify the operator of an attempt's end (R40 to R42)."""
        if ended.outcome == "aborted":
            self._operator.on_checkpoint_aborted(ended.attempt)
        elif region in ended.fallbacks:
            self._operator.on_checkpoint_fallback(ended.attempt, ended.fallbacks[region])
        else:
            info = CheckpointInfo(fallbacks=ended.fallbacks)
            self._operator.on_regional_checkpoint_completed(ended.attempt, info)

    def close(self) -> None:
        """Close the operator."""
        self._operator.close()

    def take_figures(self) -> OperatorFigures:
        """Return what it did since the last call; also while it is at work in another thread."""
        return self._meter.take()

    def _timed(self, work: Callable[[], T]) -> T:
        """Let the operator work, and measure how long it takes."""
        begun = time.perf_counter_ns()
        try:
            return work()
        finally:
            self._meter.busy_ns += time.perf_counter_ns() - begun

    def _checked(
        self, produced: Batches, *, given: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if produced is None:
            return
        batches = (produced,) if isinstance(produced, pa.RecordBatch) else produced
        # An operator that yields works while it is asked for the next batch.
        step: partial[Any] = partial(next, iter(batches), _NO_MORE)
        while (batch := self._timed(step)) is not _NO_MORE:
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(
                    f"{self.where} put out a {type(batch).__name__}; it must put out "
                    "pyarrow.RecordBatch"
                )
            try:
                rows = fitted(batch, self.stage.schema)
            except TypeError as e:
                raise TypeError(
                    f"{self.where} put out rows that do not fit the schema given to apply(): {e}"
                ) from None
            if rows.num_rows:
                self._meter.rows_out += rows.num_rows
                # Before the operator goes on: it may use the memory again.
                yield self._memory.of(rows, given=given)


Instances = tuple[tuple[OperatorInstance, ...], ...]
"""Of a region: by stage, then by index."""


def _nothing_granted(state: str, refs: Sequence[SegmentRef]) -> Sequence[bool]:
    return [False] * len(refs)


def tell_instances(instances: Instances, ended: Sequence[EndedAttempt], region: str) -> None:
    """Notify operators that are not used again; one that fails at it is only logged."""
    for stage in instances:
        for instance in stage:
            try:
                for attempt in ended:
                    instance.tell(attempt, region)
            except BaseException:  # as in close_instances
                LOG.warning("an %s failed when it was notified", instance.where, exc_info=True)


def figures_of(instances: Instances) -> bytes:
    """Return, encoded, what operators did since the last call, over their parallel instances."""
    figures = []
    for stage in instances:
        taken = [instance.take_figures() for instance in stage]
        figures.append(reduce(OperatorFigures.plus, taken))
    return encode(figures)


def close_instances(instances: Instances) -> None:
    """Close operators that are not used again; one that fails to close is only logged."""
    for stage in instances:
        for instance in stage:
            try:
                instance.close()
            except BaseException:
                # Also sys.exit(): the thread is not the operator's, and its region has to answer.
                LOG.warning("an %s failed to close", instance.where, exc_info=True)


def fresh_operator(stage: StagePlan) -> Operator:
    """Make an operator that shares nothing with other instances."""
    # The pipeline's own code, on its way from the driver: never something a checkpoint holds.
    operator: Operator = pickle.loads(stage.operator)  # noqa: S301
    return operator
