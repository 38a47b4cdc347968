"""A sink on a worker, called so that its errors name it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, cast

from holdfast._core import Staged
from holdfast.regions.base.callbacks import called
from holdfast.regions.base.problem import AtWork
from holdfast.regions.protocol.orders import OutputPlan
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.parquet_stage import NO_ROWS, ParquetStage
from holdfast.regions.sinks.sink import OutputStore, Stage

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger(__name__)


class OutputAtWork(AtWork):
    """A stage, whose errors name its sink.

    Parameters
    ----------
    regions : sequence of str
        The region whose output it is, or several.
    shares : bool, default False
        Leave the rows to a file with those of other regions when it is closed, if the sink writes
        such files and the rows are not too many.

    Attributes
    ----------
    taken : TakenRows
        The rows that it left when it was closed.
    """

    kind_at_work: Literal["operator", "sink"] = "sink"

    def __init__(
        self, output: OutputPlan, regions: Sequence[str], attempt: int, *, shares: bool = False
    ) -> None:
        self.plan = output
        self.operator_name = type(output.sink).__name__
        self.taken = NO_ROWS
        more = f" and {len(regions) - 1} more" if len(regions) > 1 else ""
        self._named = f"region {regions[0]!r}{more}, attempt {attempt}"
        sink = output.sink
        self._shares = shares and isinstance(sink, ParquetSink) and not sink.per_region
        if len(regions) == 1:
            stage = sink.writer(regions[0], attempt, output.schema)
        else:
            stage = cast("ParquetSink", sink).shared_writer(regions, attempt, output.schema)
        if not isinstance(stage, Stage):
            raise TypeError(f"writer() returned {type(stage).__name__}, expected a holdfast.Stage")
        self.stage = stage

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; see `Stage.write`."""
        if batch.num_rows:
            called(self.stage.write, batch)

    def close(self) -> Staged | None:
        """End the output; see `Stage.close`. None if it leaves its rows to a shared file."""
        if self._shares:
            self.taken = cast("ParquetStage", self.stage).take()
            if self.taken.rows:
                return None
        staged = self.stage.close()
        if staged is not None and not isinstance(staged, Staged):
            raise TypeError(
                f"close() returned {type(staged).__name__}, expected a holdfast.Staged or None"
            )
        if staged is None or not self.plan.name:
            return staged
        return Staged(staged.path, staged.target, staged.rows, staged.bytes, output=self.plan.name)

    def add(self, part: OutputAtWork) -> None:
        """Add the rows that the output of a region left."""
        cast("ParquetStage", self.stage).add(part.taken)

    def require_writable(self) -> None:
        """Check that the sink takes the rows that it left, see `ParquetStage.require_writable`."""
        cast("ParquetStage", self.stage).require_writable(self.taken)

    def discard(self) -> None:
        """Throw the rows away; the sweep does it if that fails."""
        try:
            called(self.stage.discard)
        except BaseException:
            # Also sys.exit(): the thread is not the sink's, and the region has to answer.
            LOG.warning(
                "sink %r did not discard the output of %s; it is left to the sweep",
                self.operator_name,
                self._named,
                exc_info=True,
            )


def persisted(
    outputs: Sequence[OutputAtWork], store: OutputStore | None
) -> list[BaseException | None]:
    """Make closed output of one sink durable; see `TwoPhaseSink.persist`. Raises nothing."""
    if not outputs:
        return []
    sink = outputs[0].plan.sink
    try:
        found = list(sink.persist([each.stage for each in outputs], store))
        if len(found) != len(outputs):
            raise ValueError(f"persist() returned {len(found)} answers for {len(outputs)} stages")
    except (Exception, SystemExit) as error:
        # Also sys.exit(): the process is not the sink's, and other regions are at work in it.
        for output in outputs:
            output.discard()
        return [error] * len(outputs)
    return found
