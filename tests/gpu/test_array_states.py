"""Array states through a snapshot and back, with every array module: every type and shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import Owner, SegmentRef, StateError
from holdfast._core import Piece
from holdfast.regions.state.kinds.kind import StateOptions
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import read_operator, segments_of, write_operator
from support.regional.array_checkpoints import OWNERS, SMALL, ArrayCheckpoints, refs_of

DTYPES = [*"?bBhHiIlLqQefdFDg", ">f8", ">i2", ">u4"]
# CuPy has no such types: long doubles, and the other byte order.
NOT_ON_A_DEVICE = ["g", ">f8", ">i2", ">u4"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (3, 5), (257,), (9, 3, 11)]


def nothing_granted(state: str, refs: Sequence[SegmentRef]) -> list[bool]:
    return [False] * len(refs)


def random_array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = np.random.default_rng(7).integers(0, 100, shape)
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_array_comes_back_bit_by_bit(
    tmp_path: Path, xp: Any, dtype: str, shape: tuple[int, ...]
) -> None:
    if xp is not np and dtype in NOT_ON_A_DEVICE:
        pytest.skip("there is no such type on a device")
    with ArrayCheckpoints(tmp_path, shape=shape, dtype=dtype, xp=xp) as world:
        content = random_array(shape, dtype)
        world.restore_content(content)
        world.attempt()
        world.restart()
        assert type(world.array) is xp.ndarray
        assert world.array.dtype == content.dtype
        assert world.array.shape == shape
        assert world.host().tobytes() == content.tobytes()
        assert getattr(world.array.flags, "writeable", True)  # CuPy's always are


def test_an_array_is_kept_in_c_order_whatever_views_were_written_through(
    tmp_path: Path, xp: Any
) -> None:
    with ArrayCheckpoints(tmp_path, shape=(12, 40), dtype="int64", xp=xp) as world:
        world.array.T[3:, ::2] = xp.arange(37 * 6).reshape(37, 6)
        content = world.host().copy()
        world.attempt()
        world.restart()
        assert np.array_equal(world.host(), content)


@pytest.mark.parametrize("exact", [False, True])
def test_bits_that_compare_equal_or_unequal_to_anything_are_told_apart(
    tmp_path: Path, xp: Any, exact: bool
) -> None:
    with ArrayCheckpoints(tmp_path, shape=(32,), dtype="float64", xp=xp, exact=exact) as world:
        world.array[0], world.array[1] = np.nan, 0.0
        world.attempt()
        # From an array: CuPy takes a scalar that equals 0 for one of zero bits.
        world.array[1:2] = xp.asarray([-0.0])
        world.attempt()
        world.restart()
        assert np.isnan(world.host()[0])
        assert np.signbit(world.host()[1])


@pytest.mark.parametrize("shape", [(4, 2), (64, 2)])
def test_an_array_that_was_reshaped_in_place_is_refused(shape: tuple[int, int]) -> None:
    registry = StateRegistry(np, owner="test", options=StateOptions(layout=SMALL))
    array = registry.array("sums", shape=shape)
    array.resize(shape[::-1], refcheck=False)
    with pytest.raises(StateError, match=r"state 'sums' of test was declared as .* of shape"):
        registry.freeze(nothing_granted)


def test_every_state_has_segments_of_its_own_or_none(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(1,), xp=xp) as world:
        registry = StateRegistry(xp, options=StateOptions(layout=SMALL))
        large = registry.array("large", shape=(300,), dtype="uint8")
        small = registry.array("small", shape=(8,), dtype="int64")
        text = registry.value("text", "x" * 2000)
        large[:], small[:] = 3, 4
        frozen = registry.freeze(nothing_granted)
        entry = write_operator(world, OWNERS, 1, "operator", frozen)
        assert [state.name for state in entry.states] == ["large", "small", "text"]
        segments = [(owner.store, len(refs)) for owner, refs in segments_of(OWNERS, entry)]
        assert segments == [("large", 2), ("text", 1)]
        restored = StateRegistry(
            xp, read_operator(world, OWNERS, entry), options=StateOptions(layout=SMALL)
        )
        assert xp.array_equal(restored.array("large", shape=(300,), dtype="uint8"), large)
        assert xp.array_equal(restored.array("small", shape=(8,), dtype="int64"), small)
        assert restored.value("text").value == text.value
        restored.check_restored()


def test_every_segment_is_read_once(tmp_path: Path, xp: Any) -> None:
    read = []

    class Reads(ArrayCheckpoints):
        def read(self, ref: SegmentRef, owner: Owner) -> bytes:
            read.append(ref)
            return super().read(ref, owner)

    with Reads(tmp_path, shape=(600,), xp=xp) as world:
        world.attempt()
        world.array[100] += 1  # the first segment lies on both sides of it
        entry = world.attempt()
        world.restart()
        assert sorted(read) == sorted(refs_of(entry))


def test_a_restored_array_changes_nothing_that_others_restore(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(10,), xp=xp) as world:
        registry = StateRegistry(xp, options=StateOptions(layout=SMALL))
        registry.array("sums", shape=(8,))[:] = 1
        frozen = registry.freeze(nothing_granted)
        for _ in range(2):
            restored = StateRegistry(xp, frozen).array("sums", shape=(8,))  # type: ignore[arg-type]
            assert restored.tolist() == [1] * 8
            restored[:] = 2
        world.attempt()


def test_neighbouring_chunks_of_a_segment_are_one_piece(tmp_path: Path, xp: Any) -> None:
    with ArrayCheckpoints(tmp_path, shape=(600,), xp=xp) as world:
        (state,) = world.attempt().states
        assert [piece.length for piece in state.pieces] == [256, 256, 88]
        world.array[300] = 1  # in the first chunk of the second segment
        (now,) = world.attempt().states
        first, second, third = state.pieces
        written = next(piece for piece in now.pieces if piece.ref not in {first.ref, second.ref})
        rest = Piece(second.ref, 64, 192)
        assert list(now.pieces) == [first, Piece(written.ref, 0, 64), rest, third]
