"""Large arrays cut in chunks: the chunks that an older segment still has, and the ones to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast._core import Piece, SegmentRef
from holdfast.regions.base.saved import Lease, StoredPiece

Flags: TypeAlias = "npt.NDArray[np.bool_]"
"""One per chunk."""

MIB: Final = 1024 * 1024

#: Sizes of chunks that an array may ask for. Digests of smaller ones take more than they save.
CHUNK_BYTES: Final = tuple(1 << bits for bits in range(9, 21))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How arrays are cut.

    - `chunk_bytes`: a chunk, a multiple of 8 bytes, is written as a whole or not at all. An array
      of one chunk at most is not tracked, but written with its operator's other small states.
    - `segment_bytes`: neighbouring chunks share a segment up to this multiple of `chunk_bytes`. In
      larger segments few unchanged chunks would keep much; smaller ones need many references.
    """

    chunk_bytes: int = MIB
    segment_bytes: int = 8 * MIB

    def __post_init__(self) -> None:
        if self.chunk_bytes < 8 or self.chunk_bytes % 8:
            raise ValueError(
                f"chunk_bytes={self.chunk_bytes} is not allowed: expected a multiple of 8"
            )
        if self.segment_bytes < self.chunk_bytes or self.segment_bytes % self.chunk_bytes:
            raise ValueError(
                f"segment_bytes={self.segment_bytes} is not allowed: expected a multiple of "
                f"chunk_bytes={self.chunk_bytes}"
            )

    def chunks(self, nbytes: int) -> int:
        """Return the number of chunks of an array; the last one may be shorter."""
        return -(-nbytes // self.chunk_bytes)


class Place(NamedTuple):
    """The place of a chunk: segment, byte in its payload, and size of that payload in bytes."""

    ref: SegmentRef
    offset: int
    payload_bytes: int


Places = Sequence[Place | None]
"""By chunk; None where a chunk is in no segment, or not in one piece."""


@dataclass(frozen=True)
class Run:
    """Bytes of an array that become one segment: from `start`, at a chunk, to before `stop`."""

    start: int
    stop: int


def places_of(stored: Iterable[StoredPiece], nbytes: int, layout: Layout) -> list[Place | None]:
    """Find the chunks of an array in the pieces that a checkpoint has of it.

    The pieces are in order, and `nbytes` long together. They may be cut elsewhere than chunks.
    """
    places: list[Place | None] = [None] * layout.chunks(nbytes)
    start = 0
    for part in stored:
        piece, stop = part.piece, start + part.piece.length
        for chunk in range(layout.chunks(start), layout.chunks(stop)):
            first = chunk * layout.chunk_bytes
            if min(first + layout.chunk_bytes, nbytes) <= stop:
                offset = piece.payload_offset + first - start
                places[chunk] = Place(piece.ref, offset, part.payload_bytes)
        start = stop
    return places


@dataclass(frozen=True)
class Holders:
    """The segments of an array's chunks, in a form that is quick to ask.

    `payload_bytes` is each segment's payload size, `of_chunk` each chunk's segment number or -1.
    """

    refs: list[SegmentRef]
    payload_bytes: npt.NDArray[np.int64]
    of_chunk: npt.NDArray[np.int64]

    @classmethod
    def of(cls, places: Places) -> Holders:
        """Find the segments of chunks that are at these places."""
        sizes: dict[SegmentRef, int] = {}
        numbers: dict[SegmentRef, int] = {}
        of_chunk = np.full(len(places), -1, np.int64)
        before, number = None, -1
        for chunk, place in enumerate(places):
            if place is None:
                continue
            if place.ref is not before:  # neighbours are mostly in one segment
                before = place.ref
                sizes[before] = place.payload_bytes
                number = numbers.setdefault(before, len(numbers))
            of_chunk[chunk] = number
        return cls(list(sizes), np.array(list(sizes.values()), np.int64), of_chunk)

    def granted_by(self, lease: Lease) -> Granted:
        """Return a callable that asks only for leases of the wanted segments."""
        return lambda numbers: lease([self.refs[number] for number in numbers.tolist()])

    def leased_all(self, lease: Lease) -> Granted:
        """Ask for leases of all segments before the wanted ones are known.

        The manager keeps a segment until the attempt is decided, so an extra one costs nothing.
        """
        flags = np.array(lease(self.refs) if self.refs else [], np.bool_)
        return lambda numbers: flags[numbers]


Granted: TypeAlias = "Callable[[npt.NDArray[np.int64]], Sequence[bool] | Flags]"
"""Says which of some segments of `Holders`, by their numbers, an attempt may refer to."""


def kept(
    holders: Holders, unchanged: Flags, nbytes: int, layout: Layout, granted: Granted
) -> Flags:
    """Decide which chunks remain in their segments.

    A chunk remains if it did not change, if at least half of its segment is still needed, and if
    the manager leases the segment to the attempt. The half bounds how much a few last chunks can
    keep, because the manager only sees whole segments.

    An operator waits for this, so there is no loop over chunks. `granted` is asked at most once.
    """
    lengths = np.full(len(unchanged), layout.chunk_bytes, np.int64)
    lengths[-1:] = nbytes - (len(unchanged) - 1) * layout.chunk_bytes
    candidates = unchanged & (holders.of_chunk >= 0)
    needed = np.zeros(len(holders.refs), np.int64)
    np.add.at(needed, holders.of_chunk[candidates], lengths[candidates])
    wanted = ((needed > 0) & (2 * needed >= holders.payload_bytes)).nonzero()[0]
    usable = np.zeros(len(holders.refs) + 1, np.bool_)  # the last one for chunks in no segment
    if wanted.size:
        usable[wanted] = granted(wanted)
    flags: Flags = candidates & usable[holders.of_chunk]
    return flags


def runs(keep: Flags, nbytes: int, layout: Layout) -> list[Run]:
    """Return the parts of an array to be written, in order: all chunks that are not kept."""
    chunks = (~keep).nonzero()[0]
    if not chunks.size:
        return []
    ends = np.append((np.diff(chunks) > 1).nonzero()[0], chunks.size - 1)
    begins = np.append(0, ends[:-1] + 1)
    return [
        Run(start, min(start + layout.segment_bytes, stop))
        for first, last in zip(chunks[begins].tolist(), chunks[ends].tolist(), strict=True)
        for stop in [min((last + 1) * layout.chunk_bytes, nbytes)]
        for start in range(first * layout.chunk_bytes, stop, layout.segment_bytes)
    ]


def pieces(places: Sequence[Place], nbytes: int, layout: Layout) -> list[Piece]:
    """Return the pieces for a checkpoint's metadata; neighbours in a segment are one piece."""
    found: list[Piece] = []
    first, start = places[0], 0
    for chunk, place in enumerate(places):
        here = chunk * layout.chunk_bytes
        same = place.ref is first.ref or place.ref == first.ref
        if not same or place.offset - first.offset != here - start:
            found.append(Piece(first.ref, first.offset, here - start))
            first, start = place, here
    return [*found, Piece(first.ref, first.offset, nbytes - start)]
