"""Array states on a device, with host memory in its place: what is copied, kept and held on to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from holdfast import SegmentRef
from holdfast._core import Piece
from holdfast.regions.state.arrays import Declared, bytes_of
from holdfast.regions.state.chunks import Layout, Run
from holdfast.regions.state.device_arrays import DeviceArray, fetched
from holdfast.regions.state.saved import StoredPiece

LAYOUT = Layout(chunk_bytes=64, segment_bytes=128)


class Copy:
    """A copy to the host that happens only when the reader waits for it."""

    def __init__(self, source: npt.NDArray[Any], buffer: npt.NDArray[Any]) -> None:
        self._source, self._buffer = source, buffer
        buffer[:] = 255  # of which nothing may be taken for the content

    def wait(self) -> npt.NDArray[Any]:
        self._buffer[:] = self._source
        return self._buffer


class HostLane:
    """Two buffers in turn."""

    def __init__(self) -> None:
        self.buffers = [np.empty(128, np.uint8) for _ in range(2)]
        self.fetched: list[Run] = []

    def unchanged(self, image: Any, before: Any, chunk_bytes: int) -> npt.NDArray[np.bool_]:
        return (image.reshape(-1, chunk_bytes) == before.reshape(-1, chunk_bytes)).all(axis=1)  # type: ignore[no-any-return]

    def fetch(self, image: Any, run: Run) -> Copy:
        buffer = self.buffers[len(self.fetched) % 2][: run.stop - run.start]
        self.fetched.append(run)
        return Copy(image[run.start : run.stop], buffer)


class SmallDevice:
    """A device with room for a number of copies, which counts those that anybody still holds."""

    buffer_bytes = 128

    def __init__(self, *, room: int = 2) -> None:
        self.room = room
        self.the_lane = HostLane()
        self._images: list[Any] = []

    def copy(self, array: Any, image_bytes: int) -> Any:
        import sys

        # Held by the list, the loop and the call alone: no reader needs it.
        self._images = [image for image in self._images if sys.getrefcount(image) > 3]
        if len(self._images) >= self.room:
            raise MemoryError
        image = np.zeros(image_bytes, np.uint8)
        image[: array.nbytes] = bytes_of(array)
        self._images.append(image)
        return image

    def view(self, array: Any) -> Any:
        return bytes_of(array)

    @contextmanager
    def lane(self) -> Iterator[HostLane]:
        yield self.the_lane

    def upload(self, content: Any) -> Any:
        return content.copy()


class Segments:
    """Segments in memory."""

    def __init__(self) -> None:
        self.payloads: dict[SegmentRef, bytes] = {}

    def append(self, data: Any) -> SegmentRef:
        number = len(self.payloads)
        ref = SegmentRef.from_bytes(number.to_bytes(8, "little") + bytes(36))
        self.payloads[ref] = bytes(data)
        return ref

    def content(self, pieces: list[Piece]) -> bytes:
        return b"".join(
            self.payloads[piece.ref][piece.payload_offset : piece.payload_offset + piece.length]
            for piece in pieces
        )


def grant(refs: Any) -> list[bool]:
    return [True] * len(refs)


def state(array: Any, device: SmallDevice, stored: tuple[StoredPiece, ...] = ()) -> DeviceArray:
    declared = Declared("state", array.dtype, array.shape, "state 'state'")
    return DeviceArray(declared, array, LAYOUT, stored, device=device)


def random_array(items: int = 100) -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, 1 << 40, items)


def snapshot(of: DeviceArray, segments: Segments) -> list[Piece]:
    return of.freeze(grant).write(segments.append)


def test_a_snapshot_has_the_content_at_the_moment_it_was_taken() -> None:
    array, segments = random_array(), Segments()
    frozen = state(array, SmallDevice()).freeze(grant)
    content = array.tobytes()
    array[:] = 0
    assert segments.content(frozen.write(segments.append)) == content


def test_only_chunks_that_changed_come_to_the_host() -> None:
    array, device, segments = random_array(), SmallDevice(), Segments()
    tracked = state(array, device)
    snapshot(tracked, segments)
    device.the_lane.fetched.clear()
    array[9] += 1
    array[99] += 1
    pieces = snapshot(tracked, segments)
    assert device.the_lane.fetched == [Run(64, 128), Run(768, 800)]
    assert segments.content(pieces) == array.tobytes()


def test_a_restored_array_begins_with_the_pieces_of_its_checkpoint() -> None:
    array, device, segments = random_array(), SmallDevice(), Segments()
    pieces = snapshot(state(array, SmallDevice()), segments)
    stored = tuple(StoredPiece(piece, len(segments.payloads[piece.ref])) for piece in pieces)
    tracked = state(array, device, stored)
    array[0] += 1
    assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert device.the_lane.fetched == [Run(0, 64)]


def test_an_attempt_that_was_not_written_leaves_the_last_written_one() -> None:
    array, segments = random_array(), Segments()
    tracked = state(array, SmallDevice(room=3))
    snapshot(tracked, segments)
    before = array.copy()
    array[:] += 1
    tracked.freeze(grant)
    array[:] = before
    count = len(segments.payloads)
    assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert len(segments.payloads) == count


def test_one_copy_is_held_between_snapshots() -> None:
    array, device, segments = random_array(), SmallDevice(room=2), Segments()
    tracked = state(array, device)
    for number in range(4):
        array[number] += 1
        device.the_lane.fetched.clear()
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert len(device.the_lane.fetched) == 1


def test_without_room_for_two_copies_a_snapshot_is_full(caplog: pytest.LogCaptureFixture) -> None:
    array, device, segments = random_array(), SmallDevice(room=1), Segments()
    tracked = state(array, device)
    for _ in range(3):
        array[5] += 1
        device.the_lane.fetched.clear()
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        assert len(device.the_lane.fetched) == 7
    assert not caplog.records  # the operator waited for a copy on the device only


def test_without_room_for_any_copy_the_operator_waits_for_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    array, segments = random_array(), Segments()
    frozen = state(array, SmallDevice(room=0)).freeze(grant)
    content = array.tobytes()
    array[:] = 0
    assert segments.content(frozen.write(segments.append)) == content
    assert "no room for a copy of 800 bytes" in caplog.text


def test_segments_larger_than_the_buffers_are_refused() -> None:
    array = random_array()
    declared = Declared("state", array.dtype, array.shape, "state")
    with pytest.raises(ValueError, match="segment_bytes=8388608 is not allowed"):
        DeviceArray(declared, array, Layout(), device=SmallDevice())


def test_the_next_part_is_on_its_way_while_one_is_used() -> None:
    image, lane = random_array(64).view(np.uint8), HostLane()
    wanted = [Run(start, start + 128) for start in range(0, 512, 128)]
    for number, (run, content) in enumerate(fetched(lane, image, wanted)):
        assert len(lane.fetched) == min(number + 2, 4)
        assert np.array_equal(content, image[run.start : run.stop])
