"""Digests of chunks on a device, as they are defined: every change is seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from holdfast.regions.state.arrays.chunks import MIB
from holdfast.regions.state.arrays.digests import (
    PART_BYTES,
    DigestKey,
    parts_of,
    unchanged_chunks,
)
from support.regional.digest_reference import digests_of

Bytes = npt.NDArray[np.uint8]

CHUNK = 4096
ROW = 4096


def random_bytes(size: int, seed: int = 1) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.fixture(params=["random", "zeros", "ones"])
def chunk(request: pytest.FixtureRequest) -> Bytes:
    contents = {"zeros": np.zeros(CHUNK, np.uint8), "ones": np.full(CHUNK, 255, np.uint8)}
    return contents.get(request.param, random_bytes(CHUNK))


def digest(chunk: Bytes, key: DigestKey) -> bytes:
    return digests_of(chunk, max(chunk.nbytes, 8), key).tobytes()


def test_every_bit_that_flips_changes_the_digest_whatever_surrounds_it(chunk: Bytes) -> None:
    key = DigestKey.random(CHUNK)
    seen = {digest(chunk, key)}
    for bit in range(0, 8 * CHUNK, 37):  # all bits of a word, in words all over the chunk
        chunk[bit // 8] ^= 1 << bit % 8
        seen.add(digest(chunk, key))
        chunk[bit // 8] ^= 1 << bit % 8
    assert len(seen) == 1 + len(range(0, 8 * CHUNK, 37))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 64, 1024])
def test_parts_that_change_places_change_the_digest(width: int) -> None:
    key, chunk = DigestKey.random(CHUNK), random_bytes(CHUNK)
    before = digest(chunk, key)
    for distance in (1, 2, 3):
        swapped = chunk.copy()
        swapped[:width], swapped[distance * width : (distance + 1) * width] = (
            chunk[distance * width : (distance + 1) * width],
            chunk[:width],
        )
        assert digest(swapped, key) != before
    assert digest(np.roll(chunk, width), key) != before


def test_rows_and_parts_of_a_large_chunk_do_not_change_places_unseen() -> None:
    key, chunk = DigestKey.random(MIB), random_bytes(MIB)
    before = digest(chunk, key)
    for width in (ROW, 16 * ROW, PART_BYTES):
        swapped = np.concatenate([chunk[width : 2 * width], chunk[:width], chunk[2 * width :]])
        assert digest(swapped, key) != before


def test_zeros_of_either_sign_and_all_nans_are_told_apart() -> None:
    key = DigestKey.random(CHUNK)
    contents = [np.full(CHUNK // 8, value) for value in (0.0, -0.0, np.nan, -np.nan)]
    assert len({digest(content.view(np.uint8), key) for content in contents}) == 4


def test_sums_that_stay_the_same_change_the_digest() -> None:
    key, chunk = DigestKey.random(CHUNK), random_bytes(CHUNK).view(np.uint32)
    before = digest(chunk.view(np.uint8), key)
    for other in (1, 2, 4, 500):
        chunk[0] += np.uint32(1)
        chunk[other] -= np.uint32(1)
        assert digest(chunk.view(np.uint8), key) != before


def test_each_chunk_has_its_digest_wherever_it_lies() -> None:
    key, one, other = DigestKey.random(CHUNK), random_bytes(CHUNK, 1), random_bytes(CHUNK, 2)
    found = digests_of(np.concatenate([one, other, one]), CHUNK, key)
    assert found.shape == (3, 4)
    assert unchanged_chunks(found, found[[2, 0, 1]]).tolist() == [True, False, False]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4095])
def test_a_short_last_chunk_is_filled_up_with_zeros(size: int) -> None:
    key, data = DigestKey.random(CHUNK), random_bytes(size)
    filled = np.concatenate([data, np.zeros(CHUNK - size, np.uint8)])
    assert np.array_equal(digests_of(data, CHUNK, key), digests_of(filled, CHUNK, key))
    for at in range(0, size, 7):
        data[at] ^= 1
        assert not np.array_equal(digests_of(data, CHUNK, key), digests_of(filled, CHUNK, key))
        data[at] ^= 1


def test_each_of_the_sums_changes_in_about_half_of_its_upper_bits() -> None:
    changed = []
    for seed in range(300):
        random = np.random.default_rng(seed)
        words = [random.integers(0, 1 << 32, size, np.uint32) for size in (264, 256 * 8 + 6)]
        key, chunk = DigestKey(*words), random_bytes(CHUNK, seed)
        before = digests_of(chunk, CHUNK, key)[0]
        bit = int(random.integers(8 * CHUNK))
        chunk[bit // 8] ^= 1 << bit % 8
        changed.append(before ^ digests_of(chunk, CHUNK, key)[0])
    bits = np.unpackbits(np.array(changed).view(np.uint8), bitorder="little")
    rates = bits.reshape(300, 4, 64).mean(axis=0)
    assert (np.array(changed) != 0).all()
    assert rates[:, 32:].min() > 0.35
    assert rates[:, 32:].max() < 0.65


def test_another_key_makes_another_digest() -> None:
    chunk = random_bytes(CHUNK)
    assert len({digest(chunk, DigestKey.random(CHUNK)) for _ in range(10)}) == 10


def test_a_key_has_words_for_every_step() -> None:
    for chunk_bytes, parts in ((64, 1), (PART_BYTES, 1), (PART_BYTES + 8, 2), (MIB, 4)):
        key = DigestKey.random(chunk_bytes)
        assert parts_of(chunk_bytes) == parts
        assert key.rows.size >= 64 * 4 + 6
        assert key.parts.size == parts * 256 * 8 + 6


def test_digests_differ_if_any_word_of_them_does() -> None:
    before = np.arange(20, dtype=np.uint64).reshape(5, 4)
    found = before.copy()
    for chunk, word in enumerate([0, 1, 2, 3]):
        found[chunk, word] += np.uint64(1)
    assert unchanged_chunks(found, before).tolist() == [False, False, False, False, True]
