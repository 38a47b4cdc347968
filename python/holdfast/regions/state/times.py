"""The times by which rows expire and timers are due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AttemptTimes:
    """Times of an attempt, as an operator has been told them.

    Attributes
    ----------
    attempt : datetime.datetime
        The driver's time at the beginning of the attempt, in UTC.
    watermark : datetime.datetime or None
        That of the region; without a time zone, it is in UTC.
    """

    attempt: datetime
    watermark: datetime | None = None

    @classmethod
    def at(cls, ms: int) -> AttemptTimes:
        """Return those of an attempt that began so many milliseconds after 1970."""
        return cls(_EPOCH + timedelta(milliseconds=ms))


def microseconds_of(time: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is in UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(
        microseconds=1
    )
