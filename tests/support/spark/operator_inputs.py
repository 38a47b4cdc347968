"""Input of the operator tests: made from numbers alone, so that every run reads the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BATCHES = 6
ROWS = 120
MINUTES_PER_BATCH = 10


def events(stream: int = 0, *, batches: int = BATCHES) -> list[list[dict[str, Any]]]:
    """Keys repeat within and across batches, some are null; time advances, and some rows are late.

    Parameters
    ----------
    stream
        Makes several streams that share keys and differ in everything else.
    batches
        Number of micro-batches, of `ROWS` rows and `MINUTES_PER_BATCH` of event time each.
    """
    result = []
    for batch in range(batches):
        rows = []
        for i in range(ROWS):
            n = batch * ROWS + i
            # Half of the late rows are in windows that are over.
            late = 0 if n % 17 else 900 if n % 2 else 1800
            span = MINUTES_PER_BATCH * 60
            seconds = batch * span + (i * 37) % span - late
            rows.append(
                {
                    "key": f"k{(n * 7 + stream) % 41}" if n % 29 else None,
                    "value": (n * 31) % 1000 - 300,
                    "time": START + dt.timedelta(seconds=seconds),
                }
            )
        result.append(rows)
    return result


#: Rows of batches: the first is more than twice the rest, and becomes a base image during two small
#: ones. The second of the next two is smaller, and both are too large to wait for a fourth
#: changelog. So they become delta runs above each other.
DWINDLING = (8000, 5, 5, 1300, 1100, 40, 20, 10, 5)
MINUTES_PER_DWINDLING_BATCH = 2


def dwindling(
    stream: int = 0,
    *,
    counts: Sequence[int] = DWINDLING,
    minutes: int = MINUTES_PER_DWINDLING_BATCH,
    anew: bool = False,
) -> list[list[dict[str, Any]]]:
    """Nearly every row of the largest batch has a key of its own; later ones have some of these.

    Parameters
    ----------
    stream
        Like in :func:`events`.
    counts
        Rows of each batch.
    minutes
        Event time of each batch.
    anew
        Later batches have keys of their own instead.
    """
    result = []
    for batch, count in enumerate(counts):
        span = minutes * 60
        suffix = f"-{batch}" if anew else ""
        rows = []
        for i in range(count):
            n = i * 7 + stream + 3 * batch
            seconds = batch * span + (i * 37) % span - (900 if n % 23 == 22 else 0)
            rows.append(
                {
                    "key": f"k{n % (DWINDLING[0] - 3)}{suffix}" if n % 29 else None,
                    "value": (n * 31) % 1000 - 300,
                    "time": START + dt.timedelta(seconds=seconds),
                }
            )
        result.append(rows)
    return result


def dwindling_slowly(stream: int = 0) -> list[list[dict[str, Any]]]:
    """Like :func:`dwindling`, where keys time out without rows for four minutes after a batch.

    None does before some batches: the first one brings a watermark and the others are short.
    """
    return dwindling(stream, counts=(5, DWINDLING[0], *DWINDLING[3:]), minutes=1)


def dwindling_anew(stream: int = 0) -> list[list[dict[str, Any]]]:
    """Like :func:`dwindling`, for operators that change nothing for a known key."""
    return dwindling(stream, anew=True)
