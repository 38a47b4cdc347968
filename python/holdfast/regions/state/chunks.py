"""Large arrays cut in chunks: which of them an older segment still has, and what is written anew.

Everything here is a pure decision over where chunks lie and which of them changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast._core import Piece, SegmentRef
from holdfast.regions.state.saved import Append, Lease, StoredPiece

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

Flags: TypeAlias = "npt.NDArray[np.bool_]"
"""One per chunk."""

MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How arrays are cut.

    Parameters
    ----------
    chunk_bytes : int, default 1 MiB
        What is written or not written as a whole. An array of one chunk at most is not tracked: it
        is written with the other small states of its operator. A multiple of 8.
    segment_bytes : int, default 8 MiB
        Neighbouring chunks go into one segment up to this size, a multiple of `chunk_bytes`: more
        would let few unchanged chunks keep much, less would make many references.
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


@dataclass(frozen=True)
class Place:
    """Where one chunk lies.

    Parameters
    ----------
    ref : SegmentRef
        In this segment,
    offset : int
        at this byte of its payload.
    payload_bytes : int
        Size of that payload.
    """

    ref: SegmentRef
    offset: int
    payload_bytes: int


Places = Sequence[Place | None]
"""By chunk; None where a chunk lies in no segment, or not in one piece."""


@dataclass(frozen=True)
class Run:
    """Neighbouring bytes of an array that become one segment.

    Parameters
    ----------
    start, stop : int
        Bytes, from `start` to before `stop`; `start` is a chunk's first byte.
    """

    start: int
    stop: int


def places_of(stored: Iterable[StoredPiece], nbytes: int, layout: Layout) -> list[Place | None]:
    """Find the chunks of an array in the pieces that a checkpoint has of it.

    Parameters
    ----------
    stored : iterable of StoredPiece
        In order; together `nbytes` long. They need not be cut where chunks are.
    nbytes : int
        Size of the array.
    layout : Layout
        How it is cut.
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
    """Which segments hold the chunks of an array, in a form that is quick to ask.

    Parameters
    ----------
    refs : list of SegmentRef
        The segments.
    payload_bytes : array of int64, one per segment
        Sizes of their payloads.
    of_chunk : array of int64, one per chunk
        The index of its segment; -1 where it lies in none.
    """

    refs: list[SegmentRef]
    payload_bytes: npt.NDArray[np.int64]
    of_chunk: npt.NDArray[np.int64]

    @classmethod
    def of(cls, places: Places) -> Holders:
        """Find the segments of chunks that lie at these places."""
        import numpy as np

        sizes: dict[SegmentRef, int] = {}
        numbers: dict[SegmentRef, int] = {}
        of_chunk = np.full(len(places), -1, np.int64)
        for chunk, place in enumerate(places):
            if place is not None:
                sizes[place.ref] = place.payload_bytes
                of_chunk[chunk] = numbers.setdefault(place.ref, len(numbers))
        return cls(list(sizes), np.array(list(sizes.values()), np.int64), of_chunk)


def kept(holders: Holders, unchanged: Flags, nbytes: int, layout: Layout, lease: Lease) -> Flags:
    """Decide which chunks are referred to where they lie.

    Those that did not change, lie in a segment at least half of which is still needed, and whose
    segment the manager lets the attempt have. The half bounds what a few last chunks of a segment
    can hold on to: the manager sees whole segments only.

    An operator waits for this, so no step of it is taken for each chunk in turn.

    Parameters
    ----------
    holders : Holders
        Where the chunks lie.
    unchanged : array of bool, one per chunk
        Which of them are as they are there.
    nbytes : int
        Size of the array.
    layout : Layout
        How it is cut.
    lease : callable
        Asked once, and only if there is something to ask for.
    """
    import numpy as np

    lengths = np.full(len(unchanged), layout.chunk_bytes, np.int64)
    lengths[-1:] = nbytes - (len(unchanged) - 1) * layout.chunk_bytes
    candidates = unchanged & (holders.of_chunk >= 0)
    needed = np.zeros(len(holders.refs), np.int64)
    np.add.at(needed, holders.of_chunk[candidates], lengths[candidates])
    wanted = ((needed > 0) & (2 * needed >= holders.payload_bytes)).nonzero()[0]
    granted = np.zeros(len(holders.refs) + 1, np.bool_)  # the last one for chunks that lie nowhere
    if wanted.size:
        granted[wanted] = lease([holders.refs[number] for number in wanted.tolist()])
    flags: Flags = candidates & granted[holders.of_chunk]
    return flags


def runs(keep: Flags, nbytes: int, layout: Layout) -> list[Run]:
    """Return what has to be written, in order: all chunks that are not kept."""
    found: list[Run] = []
    for chunk in (~keep).nonzero()[0].tolist():
        start = chunk * layout.chunk_bytes
        stop = min(start + layout.chunk_bytes, nbytes)
        if found and found[-1].stop == start and stop - found[-1].start <= layout.segment_bytes:
            found[-1] = Run(found[-1].start, stop)
        else:
            found.append(Run(start, stop))
    return found


def write_runs(
    places: Places,
    keep: Flags,
    contents: Iterable[tuple[Run, Buffer]],
    layout: Layout,
    append: Append,
) -> list[Place]:
    """Write what changed; returns where every chunk lies now.

    Parameters
    ----------
    places : sequence of Place or None
        Where the chunks lay before.
    keep : array of bool, one per chunk
        Which of them stay there.
    contents : iterable of (Run, buffer)
        The others, in order. A buffer is not looked at once the next one was asked for.
    layout : Layout
        How the array is cut.
    append : callable
        Writes a segment.
    """
    now = [place if stays else None for place, stays in zip(places, keep.tolist(), strict=True)]
    for run, content in contents:
        ref = append(content)
        for start in range(run.start, run.stop, layout.chunk_bytes):
            place = Place(ref, start - run.start, run.stop - run.start)
            now[start // layout.chunk_bytes] = place
    complete = [place for place in now if place is not None]
    if len(complete) != len(now):
        raise AssertionError("a chunk is neither kept nor written")
    return complete


def pieces(places: Sequence[Place], nbytes: int, layout: Layout) -> list[Piece]:
    """Return what a checkpoint's metadata says, with neighbours in a segment as one piece."""
    return [
        Piece(place.ref, place.offset, stop - start)
        for place, start, stop in _stretches(places, nbytes, layout)
    ]


def _stretches(
    places: Sequence[Place], nbytes: int, layout: Layout
) -> Iterator[tuple[Place, int, int]]:
    first, start = places[0], 0
    for chunk, place in enumerate(places):
        here = chunk * layout.chunk_bytes
        if place.ref != first.ref or place.offset - first.offset != here - start:
            yield first, start, here
            first, start = place, here
    yield first, start, nbytes
