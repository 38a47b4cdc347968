"""Output of regions on a worker, with errors that name its sink."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from holdfast._core import Staged
from holdfast.regions.base.callbacks import called
from holdfast.regions.base.problem import AtWork, Cause, in_words
from holdfast.regions.protocol.orders import OutputPlan
from holdfast.regions.sinks.sink import OutputStore, Stage

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger(__name__)


class RegionOutput(AtWork):
    """Output of a region in an attempt: rows that wait for other regions, or a stage of a sink.

    The region has its own stage from `gather_bytes` of rows on. Until then `rows` wait, which have
    `nbytes` in memory.
    """

    kind_at_work: Literal["operator", "sink"] = "sink"

    def __init__(self, plan: OutputPlan, region: str, attempt: int, gather_bytes: int) -> None:
        self.plan = plan
        self._region = region
        self._attempt = attempt
        self._gather_bytes = gather_bytes
        self.rows: list[pa.RecordBatch] = []
        self.nbytes = 0
        self.stage: Stage | None = None

    @property
    def operator_name(self) -> str:
        """See `AtWork`."""
        return type(self.plan.sink).__name__

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, at least one; see `Stage.write`."""
        self.rows.append(batch)
        if self.stage is None:
            self.nbytes += batch.nbytes
            if self.nbytes < self._gather_bytes:
                return
            stage = self.plan.sink.writer(self._region, self._attempt, self.plan.schema)
            if not isinstance(stage, Stage):
                raise TypeError(
                    f"writer() returned {type(stage).__name__}, expected a holdfast.Stage"
                )
            self.stage = stage
        rows, self.rows = self.rows, []
        for batch in rows:
            called(self.stage.write, batch)

    def close(self) -> Staged | None:
        """End the output; see `Stage.close`. None if its rows wait."""
        staged = None if self.stage is None else self.stage.close()
        if staged is None:
            return None
        if not isinstance(staged, Staged):
            raise TypeError(
                f"close() returned {type(staged).__name__}, expected a holdfast.Staged or None"
            )
        return _named(staged, self.plan)

    def discard(self) -> None:
        """Drop the rows; the sweep does it if that fails."""
        self.rows.clear()
        try:
            if self.stage is not None:
                called(self.stage.discard)
        except BaseException:
            # Also sys.exit(): the thread is not the sink's, and the region has to answer.
            LOG.warning(
                "sink %r did not discard the output of region %r, attempt %d; it is left to the "
                "sweep",
                self.operator_name,
                self._region,
                self._attempt,
                exc_info=True,
            )

    def failed(self, error: BaseException) -> Cause:
        """Describe an error of the rows, with a trace that names the sink."""
        try:
            raise error
        except BaseException as raised:
            return Cause.of(raised)


def persisted(
    plan: OutputPlan, outputs: Sequence[RegionOutput], store: OutputStore | None
) -> list[Cause | None]:
    """Make closed stages of a sink durable; see `TwoPhaseSink.persist`. Raises nothing."""
    if not outputs:
        return []
    try:
        stages = [output.stage for output in outputs if output.stage is not None]
        found = list(plan.sink.persist(stages, store))
        if len(found) != len(outputs):
            raise ValueError(f"persist() returned {len(found)} answers for {len(outputs)} stages")
    except (Exception, SystemExit) as error:
        # Also sys.exit(): the process is not the sink's, and other regions are at work in it.
        for output in outputs:
            output.discard()
        found = [error] * len(outputs)
    return [None if error is None else _not_durable(plan, error) for error in found]


def staged_together(
    plan: OutputPlan, outputs: Mapping[str, RegionOutput], attempt: int, store: OutputStore | None
) -> Mapping[str, Staged | Cause]:
    """Stage rows of several regions; see `TwoPhaseSink.stage_together`. Raises nothing."""
    try:
        rows = {region: output.rows for region, output in outputs.items()}
        found = dict(plan.sink.stage_together(rows, attempt, plan.schema, store))
        errors = {region: e for region, e in found.items() if isinstance(e, BaseException)}
        staged = {region: one for region, one in found.items() if isinstance(one, Staged)}
        if not (errors.keys() <= rows.keys() if errors else staged.keys() == rows.keys()):
            raise TypeError(
                "stage_together() has to return a holdfast.Staged or an error for each region"
            )
    except (Exception, SystemExit) as error:
        return dict.fromkeys(outputs, _not_durable(plan, error))
    if errors:
        return {region: outputs[region].failed(error) for region, error in errors.items()}
    return {region: _named(one, plan) for region, one in staged.items()}


def _not_durable(plan: OutputPlan, error: BaseException) -> Cause:
    sink = type(plan.sink).__name__
    return Cause(f"sink {sink!r} did not make its output durable: {in_words(error)}")


def _named(staged: Staged, plan: OutputPlan) -> Staged:
    """Return a sink's staged output with the name of the output."""
    if not plan.name:
        return staged
    return Staged(staged.path, staged.target, staged.rows, staged.bytes, output=plan.name)
