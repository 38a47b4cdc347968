"""The operator of the regional pipeline, and the batch computation it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.regions import Operator, OperatorContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Flights that ``recent_mean`` looks back on, the flight itself included.
RECENT = 50

REGION_BY = ("origin", "month")

#: Within a region, these order the flights of a carrier without ties.
ORDER = ("day", "hour", "minute", "flight")

_KEPT = ("origin", "month", "day", "hour", "minute", "carrier", "flight", "dep_delay")

SCHEMA = pa.schema(
    [pa.field(name, pa.string() if name in ("origin", "carrier") else pa.int64()) for name in _KEPT]
    + [
        pa.field("departed", pa.int64()),
        pa.field("mean", pa.float64()),
        pa.field("max", pa.int64()),
        pa.field("recent_mean", pa.float64()),
    ]
)

Integers = npt.NDArray[np.int64]


class RollingDelays(Operator):
    """For every flight that departed: delay statistics of its carrier up to this flight.

    Delays are whole minutes with integer sums, so the result does not depend on where batches begin
    and end.

    Parameters
    ----------
    carriers : sequence of str
        All carriers. The state of a region has one row for each.
    """

    region_safe = True

    def __init__(self, carriers: Sequence[str]) -> None:
        self._carriers = pa.array(carriers, pa.string())

    def open(self, ctx: OperatorContext) -> None:
        """Declare the state: for each carrier three totals, and its latest delays, newest last."""
        rows = len(self._carriers)
        self._departed: Integers = ctx.state.array("departed", shape=rows, dtype="int64")
        self._sum: Integers = ctx.state.array("sum", shape=rows, dtype="int64")
        self._max: Integers = ctx.state.array(
            "max", shape=rows, dtype="int64", fill=np.iinfo(np.int64).min
        )
        self._recent: Integers = ctx.state.array("recent", shape=(rows, RECENT), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the flights that departed, each with the statistics of its carrier."""
        flights = batch.filter(pc.is_valid(batch.column("dep_delay")))
        if flights.num_rows == 0:
            return None
        found = pc.index_in(flights.column("carrier"), value_set=self._carriers)
        if found.null_count:
            raise ValueError("a flight has a carrier that the operator was not told of")
        carriers = found.to_numpy()
        delays = flights.column("dep_delay").to_numpy()
        columns: tuple[npt.NDArray[Any], ...] = (
            np.empty(len(delays), np.int64),
            np.empty(len(delays), np.float64),
            np.empty(len(delays), np.int64),
            np.empty(len(delays), np.float64),
        )
        for carrier in np.unique(carriers):
            of_carrier = np.flatnonzero(carriers == carrier)
            for column, values in zip(
                columns, self._advance(carrier, delays[of_carrier]), strict=True
            ):
                column[of_carrier] = values
        kept = [flights.column(name) for name in _KEPT]
        return pa.RecordBatch.from_arrays([*kept, *map(pa.array, columns)], schema=SCHEMA)

    def _advance(self, carrier: int, delays: Integers) -> tuple[npt.NDArray[Any], ...]:
        """Take in the next delays of a carrier; return its statistics after each of them."""
        departed = self._departed[carrier] + np.arange(1, len(delays) + 1)
        sums = self._sum[carrier] + np.cumsum(delays)
        highest = np.maximum(np.maximum.accumulate(delays), self._max[carrier])
        # Places before the first flight of a carrier hold 0 and add nothing to a sum.
        line = np.concatenate([self._recent[carrier], delays])
        total = np.concatenate([[0], np.cumsum(line)])
        recent_sums = total[RECENT + 1 :] - total[1:-RECENT]
        self._departed[carrier] = departed[-1]
        self._sum[carrier] = sums[-1]
        self._max[carrier] = highest[-1]
        self._recent[carrier] = line[-RECENT:]
        return departed, sums / departed, highest, recent_sums / np.minimum(departed, RECENT)


def batch_computation(flights: DataFrame) -> DataFrame:
    """Compute the same rows from a table, by Spark's window functions."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    ordered = Window.partitionBy(*REGION_BY, "carrier").orderBy(*ORDER)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    recent = ordered.rowsBetween(1 - RECENT, Window.currentRow)
    return flights.where(sf.col("dep_delay").isNotNull()).select(
        *_KEPT,
        sf.count("dep_delay").over(so_far).alias("departed"),
        sf.avg("dep_delay").over(so_far).alias("mean"),
        sf.max("dep_delay").over(so_far).alias("max"),
        sf.avg("dep_delay").over(recent).alias("recent_mean"),
    )
