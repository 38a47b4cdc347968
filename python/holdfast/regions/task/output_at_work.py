"""A sink on a worker, called so that its errors name it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from holdfast._core import Staged
from holdfast.regions.base.problem import AtWork
from holdfast.regions.protocol.orders import OutputPlan
from holdfast.regions.sinks.sink import OutputStore, Stage

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger(__name__)


class OutputAtWork(AtWork):
    """A stage, whose errors name its sink."""

    kind_at_work: Literal["operator", "sink"] = "sink"

    def __init__(self, output: OutputPlan, region: str, attempt: int) -> None:
        self.plan = output
        self.operator_name = type(output.sink).__name__
        self._named = f"region {region!r}, attempt {attempt}"
        stage = output.sink.writer(region, attempt, output.schema)
        if not isinstance(stage, Stage):
            raise TypeError(f"writer() returned {type(stage).__name__}, expected a holdfast.Stage")
        self.stage = stage

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; see `Stage.write`."""
        if batch.num_rows:
            self.stage.write(batch)

    def close(self) -> Staged | None:
        """End the output; see `Stage.close`."""
        staged = self.stage.close()
        if staged is not None and not isinstance(staged, Staged):
            raise TypeError(
                f"close() returned {type(staged).__name__}, expected a holdfast.Staged or None"
            )
        if staged is None or not self.plan.name:
            return staged
        return Staged(staged.path, staged.target, staged.rows, staged.bytes, output=self.plan.name)

    def discard(self) -> None:
        """Throw the rows away; the sweep does it if that fails."""
        try:
            self.stage.discard()
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
