"""From frozen states to segments, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Owner,
    Piece,
    SegmentRef,
    SegmentStore,
    StateEntry,
)
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.saved import SavedState, StateKind, StoredPiece
from holdfast.regions.graph import ChannelData, decode_channels, encode_channels
from holdfast.regions.state.tables.stored_table import FrozenTable

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from holdfast.regions.state.arrays.host import FrozenArray
    from holdfast.regions.state.kinds.kind import FrozenState

# A state of at most this size is in the metadata itself.
INLINE_BYTES: Final = 1024


class SegmentReader(Protocol):
    """A source of segments."""

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read and verify a segment; see `holdfast.SnapshotManager.read`."""


class CheckpointSegments:
    """Reads the segments of one checkpoint. Threads may share it.

    The metadata has lower bounds of file sizes, so an object store need not be asked.
    """

    def __init__(self, store: SegmentStore, checkpoint: CheckpointMetadata) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._file_bytes: Mapping[str, int] | None = None

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read and verify a segment; see `holdfast.SnapshotManager.read`."""
        if self._file_bytes is None:
            # Few tasks read anything, so not before the first read.
            self._file_bytes = self._checkpoint.file_bytes(at_most=True)
        return self._store.read(ref, owner, known_bytes=self._file_bytes.get(ref.file, 0))


class SegmentAppender(Protocol):
    """A destination of segments: a manager, or the image of a checkpoint."""

    def append(
        self,
        owner: Owner,
        checkpoint: int,
        data: Buffer,
        *,
        kind: Literal["snapshot", "changelog", "in_flight"] = "snapshot",
        lineage: Sequence[SegmentRef] = (),
        entries: int = 0,
    ) -> SegmentRef:
        """Append a segment; see `holdfast.SnapshotManager.append`."""


def write_operator(
    store: SegmentAppender,
    owners: RegionOwners,
    checkpoint: int,
    name: str,
    states: Sequence[FrozenState],
    *,
    finished: bool = False,
) -> OperatorEntry:
    """Write the states of one operator from `StateRegistry.freeze`.

    A small state is inline, a larger one in its own segment. A large array writes only the chunks
    that no older segment has. Nothing is durable before `persist_segments`. `finished` says that
    the operator has flushed at the end of its data (R60).
    """
    entries = []
    for state in states:
        append = partial(store.append, owners.state(name, state.name), checkpoint, entries=1)
        if isinstance(state, FrozenTable):
            entries.append(table_entry(state))
        elif not isinstance(state, SavedState):
            entries.append(_entry(state, pieces=state.write(append)))
        elif state.data.nbytes <= INLINE_BYTES:
            entries.append(_entry(state, inline=bytes(state.data)))
        else:
            whole = Piece(append(state.data), 0, state.data.nbytes)
            entries.append(_entry(state, pieces=[whole]))
    return OperatorEntry(name, entries, finished=finished)


def table_entry(table: FrozenTable) -> StateEntry:
    """Return the entry of a table, which names all its segments."""
    pieces = [Piece(ref, 0, 0) for ref in table.segments]
    return StateEntry(table.name, "table", "", (), pieces=pieces, inline=table.text)


def read_operator(
    store: SegmentReader, owners: RegionOwners, entry: OperatorEntry
) -> Iterator[SavedState]:
    """Read the states of one operator back, each when it is asked for.

    The core reads the segments of a table when it is opened. Raises a CorruptSegmentError or
    FileNotFoundError, with owner, file and offset, if a segment is damaged or missing.
    """
    for state in entry.states:
        if state.inline is not None:
            data, stored = memoryview(state.inline), list[StoredPiece]()
        else:
            data, stored = _read_pieces(store, owners.state(entry.name, state.name), state.pieces)
        yield SavedState(state.name, state.kind, state.dtype, state.shape, data, tuple(stored))


def write_in_flight(
    store: SegmentAppender,
    owners: RegionOwners,
    attempt: int,
    channel: str,
    data: Sequence[ChannelData],
) -> InFlight:
    """Write pending rows of a region: few are inline, more in a segment.

    `channel` is the place where they wait: a channel, or a name for several.
    """
    payload = encode_channels(data)
    rows = sum(batch.num_rows for entry in data for batch in entry.batches)
    if len(payload) <= INLINE_BYTES:
        return InFlight(attempt, channel, rows, len(payload), inline=payload)
    ref = store.append(owners.in_flight(attempt), attempt, payload, kind="in_flight", entries=rows)
    return InFlight(attempt, channel, rows, len(payload), ref=ref)


def read_in_flight(
    store: SegmentReader,
    owners: RegionOwners,
    data: InFlight,
    *,
    skipped: Sequence[tuple[int, int]] = (),
) -> tuple[ChannelData, ...]:
    """Read pending rows of a region back, without the rows in `skipped`.

    `skipped` has ascending ranges of rows that no operator has seen: the first number, and the one
    after the last. Raises a CorruptSegmentError or FileNotFoundError if the segment is damaged or
    missing, and a ValueError if `write_in_flight` did not write the rows.
    """
    payload = data.inline or b""
    if data.ref is not None:
        payload = store.read(data.ref, owners.in_flight(data.created))
    try:
        found = decode_channels(payload)
    except ValueError as e:
        raise ValueError(f"region {owners.region!r}, checkpoint {data.created}: {e}") from e
    if not skipped:
        return found
    return tuple(
        replace(channel, batches=tuple(_without(channel.batches, skipped))) for channel in found
    )


def _without(
    batches: Iterable[pa.RecordBatch], skipped: Sequence[tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose numbers are in none of the ranges, which are ascending."""
    first = 0
    for batch in batches:
        begin, end = 0, batch.num_rows
        for low, high in skipped:
            low, high = max(low - first, begin), min(high - first, end)
            if low < high:
                if begin < low:
                    yield batch.slice(begin, low - begin)
                begin = high
        if begin < end:
            yield batch.slice(begin)
        first += end


def segments_of(
    owners: RegionOwners, entry: OperatorEntry
) -> Iterator[tuple[Owner, Sequence[SegmentRef]]]:
    """Return the segments of each state that has any, each segment once."""
    for state in entry.states:
        if refs := dict.fromkeys(piece.ref for piece in state.pieces):
            yield owners.state(entry.name, state.name), list(refs)


def _read_pieces(
    store: SegmentReader, owner: Owner, pieces: Sequence[Piece]
) -> tuple[memoryview, list[StoredPiece]]:
    """Return a state's bytes, writable where they are its own, and their places."""
    if len(pieces) == 1:
        (piece,) = pieces
        payload = memoryview(store.read(piece.ref, owner))
        data = payload[piece.payload_offset : piece.payload_offset + piece.length]
        return data, [StoredPiece(piece, payload.nbytes)]
    starts = list(accumulate((piece.length for piece in pieces), initial=0))
    by_segment: dict[SegmentRef, list[tuple[int, Piece]]] = {}
    for start, piece in zip(starts, pieces, strict=False):
        by_segment.setdefault(piece.ref, []).append((start, piece))
    # Each segment is read once, and only one of them is in memory at a time.
    data = memoryview(bytearray(starts[-1]))
    sizes = {}
    for ref, parts in by_segment.items():
        payload = memoryview(store.read(ref, owner))
        sizes[ref] = payload.nbytes
        for start, piece in parts:
            end = piece.payload_offset + piece.length
            data[start : start + piece.length] = payload[piece.payload_offset : end]
    return data, [StoredPiece(piece, sizes[piece.ref]) for piece in pieces]


def _entry(state: SavedState | FrozenArray, **content: Any) -> StateEntry:
    kind: StateKind = state.kind if isinstance(state, SavedState) else "array"
    return StateEntry(state.name, kind, state.dtype, state.shape, **content)
