"""The watermark of a region: how far its event time has advanced, and which rows are late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.regions.state.tables.times import microseconds_in
from holdfast.regions.task.operators import Batches, Operator, OperatorContext

#: Name of the operator, for its state and metrics.
WATERMARK: Final = "watermark"

#: Late rows, in its metrics.
LATE_ROWS: Final = "late_rows"

_US: Final = timedelta(microseconds=1)

#: Microseconds before all event times; the longest delay below it is still in 64 bits.
_BEGINNING: Final = -(2**62)
_LAST: Final = 2**63 - 1

#: The longest delay of a watermark, in microseconds: 146,135 years.
MAX_DELAY_US: Final = 2**62


class Watermark(Operator):
    """Holds back late rows: their event time is before the newest so far by more than a delay.

    The newest event time is over all earlier rows of the region, in the order of the source. So it
    depends only on these rows: not on batches, on checkpoints or on other regions. The watermark
    never goes back: a start with a longer delay keeps it until rows are so far ahead. A region with
    pending rows has the watermark from before them. Flink's ``forBoundedOutOfOrderness``, with a
    watermark after every row.

    - `column`: has the event times, of Arrow's type timestamp. Rows without one are never late.
    - `late`: side output for late rows; if empty, they are dropped. ``late_rows`` counts both.
    - `has_zone`: the event times are instants.
    """

    region_safe = True

    def __init__(self, column: str, delay_us: int, late: str, *, has_zone: bool) -> None:
        self._column = column
        self._delay_us = delay_us
        self._late = late
        self._epoch = datetime(1970, 1, 1, tzinfo=UTC if has_zone else None)

    def open(self, ctx: OperatorContext) -> None:
        """Declare the newest event time and the watermark, in microseconds since 1970."""
        self._ctx = ctx
        self._newest = ctx.state.array("newest", shape=1, dtype="int64", fill=_BEGINNING)
        self._passed = ctx.state.array("passed", shape=1, dtype="int64", fill=_BEGINNING)
        self._late_rows = ctx.metrics.counter(LATE_ROWS)
        self._come_to(int(self._newest[0]))

    def process(self, batch: pa.RecordBatch) -> Batches:
        """Return the rows that are not late."""
        times = _microseconds(batch.column(self._column))
        before = np.array([int(self._newest[0])], dtype=np.int64)
        newest = np.maximum.accumulate(np.concatenate((before, times)))
        late = times < np.maximum(newest[:-1] - self._delay_us, int(self._passed[0]))
        late &= times > _BEGINNING
        self._come_to(int(newest[-1]))
        count = int(np.count_nonzero(late))
        if not count:
            return batch
        self._late_rows.inc(count)
        if self._late:
            self._ctx.emit(self._late, batch.filter(pa.array(late)))
        return batch.filter(pa.array(~late))

    def rest(self, ms: int) -> None:
        """Advance by milliseconds without rows, if there was an event time before."""
        if (newest := int(self._newest[0])) != _BEGINNING:
            self._come_to(min(newest + ms * 1000, _LAST))

    def now(self) -> datetime | None:
        """Return the watermark: no row on time is older. None before the first event time."""
        if self._newest[0] == _BEGINNING:
            return None
        # Event times of Arrow may be outside the years that Python knows.
        zone = self._epoch.tzinfo
        first = (datetime.min.replace(tzinfo=zone) - self._epoch) // _US
        last = (datetime.max.replace(tzinfo=zone) - self._epoch) // _US
        return self._epoch + min(max(int(self._passed[0]), first), last) * _US

    def _come_to(self, newest: int) -> None:
        """Note the newest event time, and let the watermark follow."""
        self._newest[0] = newest
        self._passed[0] = max(newest - self._delay_us, int(self._passed[0]))


def _microseconds(times: pa.Array) -> Any:
    """Return event times as microseconds since 1970; `_BEGINNING` where there is none."""
    us = pc.max_element_wise(microseconds_in(times), _BEGINNING + 1, skip_nulls=False)
    return us.fill_null(_BEGINNING).to_numpy(zero_copy_only=False)
