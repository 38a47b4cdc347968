"""In-flight data for a graph with other channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from holdfast.regions.graph.data import ChannelData

if TYPE_CHECKING:
    import pyarrow as pa

ChannelsOf: TypeAlias = "Callable[[str, pa.RecordBatch], Sequence[tuple[str, pa.RecordBatch]]]"
"""Splits a batch that waits in a channel into (new channel, rows in their order) pairs."""


def redistribute(data: Iterable[ChannelData], channels_of: ChannelsOf) -> tuple[ChannelData, ...]:
    """Divide in-flight data over other channels, by a function applied to each row (R57).

    Every row goes to exactly one channel. Rows of one old channel that go to one new channel keep
    their order. Returns an entry for each given one and each channel that got rows of it, in the
    order given.

    Raises
    ------
    ValueError
        If ``channels_of`` loses or doubles rows.
    """
    divided: list[ChannelData] = []
    for entry in data:
        parts: dict[str, list[pa.RecordBatch]] = {}
        for batch in entry.batches:
            found = 0
            for channel, rows in channels_of(entry.channel, batch):
                found += rows.num_rows
                if rows.num_rows:
                    parts.setdefault(channel, []).append(rows)
            if found != batch.num_rows:
                raise ValueError(
                    f"in-flight data of channel {entry.channel}: expected the new channels of a "
                    f"batch to have its {batch.num_rows} rows, found {found}"
                )
        divided += (
            ChannelData(channel, tuple(batches), entry.kind) for channel, batches in parts.items()
        )
    return tuple(divided)
