"""The times by which rows expire and timers are due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

_INT64: Final = np.iinfo(np.int64)

#: Microseconds in one of Arrow's units.
_IN_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AttemptTimes:
    """Times of an attempt that an operator has received.

    `attempt` is the driver's time at its beginning, in UTC. `watermark` is the region's, in UTC if
    it has no time zone.
    """

    attempt: datetime
    watermark: datetime | None = None

    @classmethod
    def at(cls, ms: int) -> AttemptTimes:
        """Return the times of an attempt that began so many milliseconds after 1970."""
        return cls(_EPOCH + timedelta(milliseconds=ms))


def microseconds_of(time: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is in UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(
        microseconds=1
    )


def microseconds_in(times: Any) -> pa.Array:
    """Return timestamps of any unit as microseconds since 1970, null where they are null.

    A time beyond 64 bits of microseconds becomes the last or first one, which keeps its order.
    """
    counts = np.asarray(times.view(pa.int64()).fill_null(0))
    if times.type.unit == "ns":
        us = counts // 1_000
    else:
        factor = _IN_UNIT[times.type.unit]
        us = np.where(counts > _INT64.max // factor, _INT64.max, counts * factor)
        us = np.where(counts < -(_INT64.max // factor), _INT64.min, us)
    return pa.array(us, pa.int64(), mask=np.asarray(times.is_null()))
