"""In-flight data for another division of the rows into regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.regions.graph.data import ChannelData

if TYPE_CHECKING:
    import pyarrow as pa


def redistribute(
    data: Iterable[ChannelData],
    region_of: Callable[[pa.RecordBatch], Sequence[tuple[str, pa.RecordBatch]]],
) -> dict[str, tuple[ChannelData, ...]]:
    """Divide in-flight data by the region function applied to each row (R57).

    Every row goes to exactly one region, the one it would be in if it came from the source now; no
    row is replicated. The order of rows within a channel is kept in each region.

    Parameters
    ----------
    data
        In-flight data of one old region. For several, concatenate what comes out per region.
    region_of
        Splits a batch into (region, rows in their order) pairs.

    Returns
    -------
    dict
        Per region one entry for each given one of which it got rows, in the same order.

    Raises
    ------
    ValueError
        If ``region_of`` loses or doubles rows.
    """
    regions: dict[str, list[ChannelData]] = {}
    for entry in data:
        parts: dict[str, list[pa.RecordBatch]] = {}
        for batch in entry.batches:
            found = 0
            for region, rows in region_of(batch):
                found += rows.num_rows
                if rows.num_rows:
                    parts.setdefault(region, []).append(rows)
            if found != batch.num_rows:
                raise ValueError(
                    f"in-flight data of channel {entry.channel}: expected the regions of a batch "
                    f"to have its {batch.num_rows} rows, found {found}"
                )
        for region, batches in parts.items():
            regions.setdefault(region, []).append(
                ChannelData(entry.channel, tuple(batches), entry.kind)
            )
    return {region: tuple(entries) for region, entries in regions.items()}
