"""Array states on a device, with host memory in its place: what is copied, kept and held on to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from holdfast import SegmentRef
from holdfast._core import Piece
from holdfast.regions.base.saved import StoredPiece
from holdfast.regions.state.arrays.chunks import Layout, Run
from holdfast.regions.state.arrays.device import fetched
from holdfast.regions.state.arrays.device_arrays import DeviceArray
from holdfast.regions.state.arrays.exact_arrays import ExactDeviceArray
from holdfast.regions.state.arrays.host import Declared
from support.regional.stand_in_device import StandInDevice

LAYOUT = Layout(chunk_bytes=64, segment_bytes=128)


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


Kind = type[DeviceArray] | type[ExactDeviceArray]


@pytest.fixture(params=[DeviceArray, ExactDeviceArray])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


def device(memory_bytes: int | None = None) -> StandInDevice:
    return StandInDevice(memory_bytes=memory_bytes, buffer_bytes=LAYOUT.segment_bytes)


def state(
    array: Any, device: StandInDevice, kind: Kind, stored: tuple[StoredPiece, ...] = ()
) -> DeviceArray | ExactDeviceArray:
    declared = Declared("state", array.dtype, array.shape, "state 'state'")
    return kind(declared, array, LAYOUT, stored, device=device)


def random_array(items: int = 100) -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, 1 << 40, items)


def snapshot(of: DeviceArray | ExactDeviceArray, segments: Segments) -> list[Piece]:
    return of.freeze(grant).write(segments.append)


def fetched_bytes(device: StandInDevice) -> int:
    """What came to the host since this was last asked for."""
    runs, device.the_lane.fetched = device.the_lane.fetched, []
    return sum(run.stop - run.start for run in runs)


def test_a_snapshot_has_the_content_at_the_moment_it_was_taken(kind: Kind) -> None:
    array, segments = random_array(), Segments()
    tracked = state(array, device(), kind)
    for changed in (100, 5, 60, 100):
        array[:changed] += 1
        frozen = tracked.freeze(grant)
        content = array.copy()
        array[:] = 0
        assert segments.content(frozen.write(segments.append)) == content.tobytes()
        array[:] = content


def test_only_chunks_that_changed_come_to_the_host() -> None:
    array, there, segments = random_array(), device(), Segments()
    tracked = state(array, there, ExactDeviceArray)
    snapshot(tracked, segments)
    there.the_lane.fetched.clear()
    array[9] += 1
    array[99] += 1
    pieces = snapshot(tracked, segments)
    assert there.the_lane.fetched == [Run(64, 128), Run(768, 800)]
    assert segments.content(pieces) == array.tobytes()


def test_only_chunks_that_changed_are_set_aside_and_come_to_the_host() -> None:
    array, there, segments = random_array(), device(), Segments()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)
    there.the_lane.fetched.clear()
    array[9] += 1
    array[99] += 1
    pieces = snapshot(tracked, segments)
    assert there.the_lane.fetched == [Run(0, 64), Run(64, 96)]
    assert segments.content(pieces) == array.tobytes()


def test_a_restored_array_begins_with_the_pieces_of_its_checkpoint(kind: Kind) -> None:
    array, there, segments = random_array(), device(), Segments()
    pieces = snapshot(state(array, device(), kind), segments)
    stored = tuple(StoredPiece(piece, len(segments.payloads[piece.ref])) for piece in pieces)
    tracked = state(array, there, kind, stored)
    array[0] += 1
    assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert there.the_lane.fetched == [Run(0, 64)]


def test_an_attempt_that_was_not_written_leaves_the_last_written_one(kind: Kind) -> None:
    array, segments = random_array(), Segments()
    tracked = state(array, device(), kind)
    snapshot(tracked, segments)
    before = array.copy()
    for changed in (100, 3):
        array[:changed] += 1
        tracked.freeze(grant)
        array[:] = before
    count = len(segments.payloads)
    assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert len(segments.payloads) == count


def test_without_room_for_any_copy_the_operator_waits_for_the_host(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    array, segments = random_array(), Segments()
    frozen = state(array, device(memory_bytes=0), kind).freeze(grant)
    content = array.tobytes()
    array[:] = 0
    assert segments.content(frozen.write(segments.append)) == content
    assert "no room for a copy of 800 bytes" in caplog.text


def test_segments_larger_than_the_buffers_are_refused(kind: Kind) -> None:
    array = random_array()
    declared = Declared("state", array.dtype, array.shape, "state")
    with pytest.raises(ValueError, match="segment_bytes=8388608 is not allowed"):
        kind(declared, array, Layout(), device=device())


def test_the_next_part_is_on_its_way_while_one_is_used() -> None:
    image, lane = random_array(64).view(np.uint8), device().the_lane
    wanted = [Run(start, start + 128) for start in range(0, 512, 128)]
    for number, (run, content) in enumerate(fetched(lane, image, wanted)):
        assert len(lane.fetched) == min(number + 2, 4)
        assert np.array_equal(content, image[run.start : run.stop])


# --- exact: an image of 832 bytes ---------------------------------------------------------------

IMAGE_BYTES = 13 * 64
FLAGS_BYTES = IMAGE_BYTES // 8


def test_one_copy_is_held_between_snapshots() -> None:
    array, there, segments = random_array(), device(2 * IMAGE_BYTES + FLAGS_BYTES), Segments()
    tracked = state(array, there, ExactDeviceArray)
    for number in range(4):
        array[number] += 1
        there.the_lane.fetched.clear()
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        assert there.used_bytes == IMAGE_BYTES
    assert len(there.the_lane.fetched) == 1


def test_without_room_for_two_copies_a_snapshot_is_full(caplog: pytest.LogCaptureFixture) -> None:
    array, there, segments = random_array(), device(IMAGE_BYTES), Segments()
    tracked = state(array, there, ExactDeviceArray)
    for _ in range(3):
        array[5] += 1
        there.the_lane.fetched.clear()
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        assert len(there.the_lane.fetched) == 7
    assert not caplog.records  # the operator waited for a copy on the device only


def test_without_room_for_the_comparison_a_snapshot_is_full() -> None:
    array, there, segments = random_array(), device(2 * IMAGE_BYTES), Segments()
    tracked = state(array, there, ExactDeviceArray)
    for _ in range(3):
        array[5] += 1
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        assert fetched_bytes(there) == 800


# --- digests: 40 chunks of 64 bytes, the last one of 8; there is room for three of them aside ----

ITEMS = 39 * 8 + 1
ROOM_BYTES = 3 * 64
DIGESTS_BYTES = 40 * 32


def changed(array: npt.NDArray[np.int64], *chunks: int) -> None:
    for chunk in chunks:
        array[8 * chunk] += 1


def test_few_changes_need_a_tenth_of_the_array_at_most() -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)
    assert there.used_bytes == 0
    there.used_bytes_max = 0
    for chunks in ((0,), (1, 2, 39), (), (5, 6)):
        changed(array, *chunks)
        fetched_bytes(there)
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        assert there.used_bytes == ROOM_BYTES <= array.nbytes // 10
        assert fetched_bytes(there) == sum(8 if chunk == 39 else 64 for chunk in chunks)
    # For a moment there are digests, too. With the chunks of 1 MiB that arrays have, these are 32
    # bytes for each MiB.
    assert there.used_bytes_max <= ROOM_BYTES + DIGESTS_BYTES


def test_changes_that_do_not_fit_aside_take_what_they_need_until_they_are_written() -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)
    there.used_bytes_max = 0
    changed(array, *range(20))
    frozen = tracked.freeze(grant)
    assert there.used_bytes == 20 * 64
    content = array.tobytes()
    array[:] = 0
    fetched_bytes(there)
    assert segments.content(frozen.write(segments.append)) == content
    assert fetched_bytes(there) == 20 * 64
    assert there.used_bytes == 0


def test_after_many_changes_a_snapshot_begins_with_a_copy_of_the_array() -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)
    steps: list[str] = []
    there.asked = steps.append
    seen = []
    for chunks in (range(40), range(1), range(40), range(40), range(1), range(1)):
        changed(array, *chunks)
        frozen = tracked.freeze(grant)
        waited, steps[:] = list(steps), []
        assert segments.content(frozen.write(segments.append)) == array.tobytes()
        seen.append((waited, list(steps), fetched_bytes(there)))
        steps.clear()
    few, all_ = 64, array.nbytes
    assert seen == [
        (["copy"], ["digests"], all_),
        (["room", "digests", "before", "numbers"], [], few),
        (["digests", "before", "numbers", "room", "numbers"], [], all_),
        (["copy"], ["digests"], all_),
        (["copy"], ["digests"], few),
        (["room", "digests", "before", "numbers"], [], few),
    ]


def test_without_room_for_what_changed_the_operator_waits_for_that_on_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)
    there.memory_bytes = DIGESTS_BYTES
    for count in (25, 30, 25):
        changed(array, *range(count))
        fetched_bytes(there)
        caplog.clear()
        frozen = tracked.freeze(grant)
        assert fetched_bytes(there) == 64 * count
        assert f"no room for a copy of {64 * count} bytes" in caplog.text
        content = array.copy()
        array[:] = 0
        assert segments.content(frozen.write(segments.append)) == content.tobytes()
        array[:] = content


def test_without_the_usual_room_aside_few_changes_take_what_they_need(
    caplog: pytest.LogCaptureFixture,
) -> None:
    array, segments = random_array(ITEMS), Segments()
    there = device()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)

    def refuse(step: str) -> None:
        if step == "room" and not (refused or refused.append(step)):
            raise MemoryError

    refused: list[str] = []
    there.asked = refuse
    changed(array, 4)
    assert segments.content(snapshot(tracked, segments)) == array.tobytes()
    assert refused == ["room"]
    assert there.used_bytes == 0
    assert not caplog.records


def test_without_room_for_digests_everything_counts_as_changed() -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)

    def refuse(step: str) -> None:
        if step == "digests":
            raise MemoryError

    amounts = []
    for refused in (False, True, False, False, True, False):
        there.asked = refuse if refused else lambda step: None
        changed(array, 7)
        assert segments.content(snapshot(tracked, segments)) == array.tobytes()
        amounts.append(fetched_bytes(there))
    # The first snapshot with digests again compares with nothing, the next one with that one.
    assert amounts == [array.nbytes] * 3 + [64] + [array.nbytes] * 2


def test_a_chunk_that_did_not_change_is_set_aside_where_its_segment_is_refused() -> None:
    array, there, segments = random_array(ITEMS), device(), Segments()
    tracked = state(array, there, DeviceArray)
    snapshot(tracked, segments)
    fetched_bytes(there)
    frozen = tracked.freeze(lambda refs: [number != 4 for number in range(len(refs))])
    content = array.tobytes()
    array[:] = 0
    assert segments.content(frozen.write(segments.append)) == content
    assert fetched_bytes(there) == LAYOUT.segment_bytes
