"""Which of several parallel instances a row goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    Route = Callable[[pa.RecordBatch, int], Sequence[pa.RecordBatch | None]]


def route_by(columns: Sequence[str]) -> Route:
    """Rows with equal values in `columns` go to the same instance, in every run and every process.

    Parameters
    ----------
    columns : sequence of str
        Columns of the rows that come in.

    Returns
    -------
    callable
        From a batch and the number of instances to one batch, or None, for each instance.
    """
    # Equal values are the same text in every process, which Python's own hash is not.
    import zlib

    from holdfast.regions.splitting import split_by_region

    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        parts: list[list[pa.RecordBatch]] = [[] for _ in range(instances)]
        for name, rows in split_by_region(batch, region_by=columns):
            parts[zlib.crc32(name.encode()) % instances].append(rows)
        return [_joined(part) for part in parts]

    return route


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    import pyarrow as pa

    return pa.concat_batches(parts) if len(parts) > 1 else next(iter(parts), None)
