"""Rows of a region in quarantine: each batch adds a piece, and small pieces are merged (R28)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Final

import pyarrow as pa

from holdfast._core import InFlight
from holdfast.regions.graph import SOURCE, ChannelData
from holdfast.regions.task.region.feed import joined
from holdfast.regions.task.region.region import RegionStore

#: A piece of this size is not merged any more. A merged one has at most twice as much, in the
#: memory of a task.
LARGE_BYTES: Final = 32 << 20


def with_rows(
    store: RegionStore, owed: Sequence[InFlight], rows: Sequence[pa.RecordBatch], *, pieces: int
) -> list[InFlight]:
    """Store rows after the pending rows of a region, and return where all of them are.

    A row is written again only where its piece becomes at least twice as large: about as often as
    the size of all has binary digits. Older pieces remain unchanged. A merged piece has no rows
    that are skipped. See `merged_from` for `pieces`. Raises an OSError or ValueError if a piece
    cannot be read or written.
    """
    first = merged_from(
        [_size(piece) for piece in owed], sum(batch.nbytes for batch in rows), pieces
    )
    before = [batch for piece in owed[first:] for batch in store.owed(piece)]
    of_schemas = groupby([*before, *rows], key=lambda batch: batch.schema)
    together = chain.from_iterable(joined(list(alike)) for _, alike in of_schemas)
    channel = ChannelData(SOURCE, tuple(together), "input")
    return [*owed[:first], store.write(SOURCE, [channel])]


def merged_from(sizes: Sequence[int], added: int, pieces: int) -> int:
    """Return the number of the first piece that the next one is merged with.

    It is the first one that is not larger than all after it. So each remaining piece is larger than
    all after it. `sizes` are bytes of the pieces, oldest first, and `added` bytes of the next.
    Up to `pieces` small ones are not merged. Their sizes differ by less than 2^32, so among 32
    there are always some to merge.
    """
    small = len(sizes)
    while small and sizes[small - 1] < LARGE_BYTES:
        small -= 1
    if len(sizes) - small < pieces:
        return len(sizes)
    first, behind = len(sizes), added
    for number in range(len(sizes) - 1, small - 1, -1):
        if sizes[number] <= behind and behind + sizes[number] <= 2 * LARGE_BYTES:
            first = number
        behind += sizes[number]
    return first


def _size(piece: InFlight) -> int:
    # Rows that wait between operators are not merged.
    return piece.bytes if piece.channel == SOURCE else LARGE_BYTES
