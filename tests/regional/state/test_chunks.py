"""Where chunks lie, which of them are kept, and what is written anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Barrier

import numpy as np
import pytest

from holdfast import SegmentRef
from holdfast._core import Piece
from holdfast.regions.base.saved import StoredPiece
from holdfast.regions.state.arrays.chunks import (
    Holders,
    Layout,
    Place,
    Run,
    kept,
    pieces,
    places_of,
    runs,
)
from holdfast.regions.state.arrays.host import equal_digests
from holdfast.regions.state.arrays.writing import WRITTEN_AT_ONCE, write_runs

LAYOUT = Layout(chunk_bytes=8, segment_bytes=16)


def ref(number: int) -> SegmentRef:
    return SegmentRef.from_bytes(number.to_bytes(8, "little") + bytes(36))


def stored(*parts: tuple[int, int, int]) -> list[StoredPiece]:
    return [StoredPiece(Piece(ref(number), at, length), 100) for number, at, length in parts]


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def grant(refs: Sequence[SegmentRef]) -> list[bool]:
    return [True] * len(refs)


def test_chunks_of_a_piece_lie_one_after_the_other() -> None:
    places = places_of(stored((1, 40, 16), (2, 0, 3)), 19, LAYOUT)
    assert places == [Place(ref(1), 40, 100), Place(ref(1), 48, 100), Place(ref(2), 0, 100)]


def test_chunks_across_two_pieces_lie_nowhere() -> None:
    places = places_of(stored((1, 0, 12), (2, 50, 20)), 32, LAYOUT)
    assert places == [Place(ref(1), 0, 100), None, Place(ref(2), 54, 100), Place(ref(2), 62, 100)]


def test_pieces_are_what_they_were_found_in() -> None:
    parts = stored((1, 40, 16), (2, 0, 8), (1, 56, 3))
    places = [place for place in places_of(parts, 27, LAYOUT) if place is not None]
    assert pieces(places, 27, LAYOUT) == [part.piece for part in parts]


def test_what_is_not_kept_is_written_in_runs_of_at_most_a_segment() -> None:
    assert runs(flags(0, 0, 0, 1, 0), 37, LAYOUT) == [Run(0, 16), Run(16, 24), Run(32, 37)]
    assert runs(flags(1, 1), 16, LAYOUT) == []


def test_only_unchanged_chunks_with_a_place_are_kept() -> None:
    places = [Place(ref(1), 0, 16), None, Place(ref(1), 8, 16)]
    granted = Holders.of(places).granted_by(grant)
    found = kept(Holders.of(places), flags(1, 1, 0), 24, LAYOUT, granted)
    assert found.tolist() == [True, False, False]


def test_the_manager_is_asked_once_and_only_for_what_is_wanted() -> None:
    places = Holders.of([Place(ref(1), 0, 8), Place(ref(2), 0, 17), Place(ref(3), 0, 5)])
    asked: list[Sequence[SegmentRef]] = []

    def lease(refs: Sequence[SegmentRef]) -> list[bool]:
        asked.append(refs)
        return [number != ref(1) for number in refs]

    granted = places.granted_by(lease)
    assert kept(places, flags(1, 1, 1), 21, LAYOUT, granted).tolist() == [False, False, True]
    assert asked == [[ref(1), ref(3)]]
    kept(places, flags(0, 0, 0), 21, LAYOUT, granted)
    assert len(asked) == 1


def test_a_manager_that_is_asked_for_all_segments_grants_no_other_chunk() -> None:
    places = Holders.of([Place(ref(1), 0, 8), Place(ref(2), 0, 17), Place(ref(3), 0, 5)])
    granted = places.leased_all(lambda refs: [number != ref(1) for number in refs])
    assert kept(places, flags(1, 1, 1), 21, LAYOUT, granted).tolist() == [False, False, True]
    assert kept(places, flags(1, 1, 0), 21, LAYOUT, granted).tolist() == [False, False, False]


def test_segments_are_written_at_once_and_in_their_places() -> None:
    runs_ = [Run(start, start + 8) for start in range(0, 80, 8)]
    buffers = [bytearray(8) for _ in range(WRITTEN_AT_ONCE + 1)]
    seen: list[bytes] = []
    together = Barrier(WRITTEN_AT_ONCE)

    def contents() -> Iterator[tuple[Run, bytearray]]:
        for number, run in enumerate(runs_):
            buffer = buffers[number % len(buffers)]
            buffer[:] = bytes([number]) * 8
            yield run, buffer

    def append(content: bytearray) -> SegmentRef:
        if content[0] < WRITTEN_AT_ONCE:
            together.wait(60)
        seen.append(bytes(content))
        return ref(content[0])

    places = write_runs([None] * 10, flags(*[0] * 10), contents(), LAYOUT, append)
    assert [place.ref for place in places] == [ref(number) for number in range(10)]
    assert sorted(seen) == [bytes([number]) * 8 for number in range(10)]


def test_a_segment_that_cannot_be_written_ends_the_writing() -> None:
    def append(content: bytes) -> SegmentRef:
        if content == b"22222222":
            raise OSError("the disk is full")
        return ref(1)

    contents = ((Run(8 * n, 8 * n + 8), bytes([48 + n]) * 8) for n in range(10))
    with pytest.raises(OSError, match="the disk is full"):
        write_runs([None] * 10, flags(*[0] * 10), contents, LAYOUT, append)
    assert next(contents)[0].start <= 8 * (2 + WRITTEN_AT_ONCE)


@pytest.mark.parametrize("half", [slice(0, 8), slice(8, 16)])
def test_digests_are_equal_only_as_a_whole(half: slice) -> None:
    before = bytes(range(48))
    found = bytearray(before)
    found[half] = bytes(8)
    assert equal_digests(bytes(found), before).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("chunk", "segment", "name"),
    [(0, 8, "chunk_bytes"), (12, 24, "chunk_bytes"), (16, 8, "segment_bytes"), (16, 40, "segm")],
)
def test_layouts_that_do_not_fit_together_are_refused(chunk: int, segment: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.* is not allowed"):
        Layout(chunk_bytes=chunk, segment_bytes=segment)
