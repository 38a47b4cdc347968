"""Digests of chunks of a buffer."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast._core import chunk_digests


def test_each_chunk_has_a_digest_of_its_own() -> None:
    digests = chunk_digests(b"abcdefgh" * 2 + b"abc", 8)
    assert len(digests) == 3 * 16
    assert digests[:16] == digests[16:32] != digests[32:]
    assert chunk_digests(b"abc", 8) == digests[32:]


def test_an_empty_buffer_has_no_chunks() -> None:
    assert chunk_digests(b"", 1) == b""


@pytest.mark.parametrize("position", [0, 63, 64, 127, 191])
def test_every_byte_counts(position: int) -> None:
    data = np.zeros(192, np.uint8)
    before = chunk_digests(data.data, 64)
    data[position] = 1
    changed = [
        chunk
        for chunk in range(3)
        if chunk_digests(data.data, 64)[16 * chunk :][:16] != before[16 * chunk :][:16]
    ]
    assert changed == [position // 64]


@pytest.mark.parametrize("chunk_bytes", [0, -1])
def test_chunks_have_at_least_one_byte(chunk_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"chunk_bytes={chunk_bytes} is not allowed"):
        chunk_digests(b"abc", chunk_bytes)
