"""An operator whose state is too large for the metadata and changes in every batch."""

from __future__ import annotations

import pyarrow as pa

from holdfast import Operator, OperatorContext

TOTALS = pa.schema([("region", pa.string()), ("rows", pa.int64())])
KEYS = 1_000


class Totals(Operator):
    """Counts rows by key, and puts out nothing: what is measured is the checkpoint alone."""

    region_safe = True

    def open(self, ctx: OperatorContext) -> None:
        self.totals = ctx.state.array("totals", shape=(KEYS,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> None:
        self.totals[batch.column("id").to_numpy() % KEYS] += 1
