"""Digests of chunks of `holdfast.regions.state.arrays.digests`, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.regions.state.arrays.digests import (
    PART_BYTES,
    PASSES,
    ROWS,
    THREADS,
    DigestKey,
    Digests,
    parts_of,
)


def digests_of(data: npt.NDArray[Any], chunk_bytes: int, key: DigestKey) -> Digests:
    """Digests of the chunks of one-dimensional bytes."""
    starts = range(0, data.nbytes, chunk_bytes)
    chunks = [data[start : start + chunk_bytes] for start in starts]
    digests = [_digest_of(chunk, parts_of(chunk_bytes), key) for chunk in chunks]
    return np.array(digests, np.uint64).reshape(-1, PASSES)


def _digest_of(chunk: npt.NDArray[Any], parts: int, key: DigestKey) -> list[np.uint64]:
    starts = range(0, parts * PART_BYTES, PART_BYTES)
    sums = [_column_sums(chunk[start : start + PART_BYTES], key) for start in starts]
    words = np.concatenate(sums).astype("<u8").view("<u4").reshape(1, -1)
    return [_nh(words, key.parts[2 * n :])[0] for n in range(PASSES)]


def _column_sums(part: npt.NDArray[Any], key: DigestKey) -> npt.NDArray[np.uint64]:
    """The sums of each column, of shape ``(THREADS, PASSES)``."""
    rows = -(-part.size // (THREADS * 16))
    filled = np.zeros(rows * THREADS * 16, np.uint8)
    filled[: part.size] = part
    # The words of a column, row by row. The same zeros end all columns.
    columns = filled.view("<u4").reshape(rows, THREADS, 4).transpose(1, 0, 2).reshape(THREADS, -1)
    zeros = np.zeros((1, (ROWS - rows) * 4), np.uint32)
    return np.stack(
        [
            _nh(columns, key.rows[2 * n :]) + _nh(zeros, key.rows[2 * n + rows * 4 :])
            for n in range(PASSES)
        ],
        axis=1,
    )


def _nh(words: npt.NDArray[np.uint32], key: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """The sum of each row: pairs of words plus words of the key, multiplied."""
    added = (words + key[: words.shape[1]]).astype(np.uint64)  # modulo 2^32 before it is widened
    products: npt.NDArray[np.uint64] = added[:, 0::2] * added[:, 1::2]
    return products.sum(axis=1, dtype=np.uint64)
