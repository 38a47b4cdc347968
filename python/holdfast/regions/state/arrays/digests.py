"""Digests of an array's chunks on a device, to find those that changed since the last snapshot.

The digest is NH, the universal hash of UMAC, twice. NH takes words of 32 bits in pairs: it adds a
word of a secret random key to each, modulo 2^32, multiplies the two, and sums the products modulo
2^64. Four sums, with the key moved by two words each time, agree for two different contents of the
same length with a probability of at most 2^-128 over all keys (Black, Halevi, Krawczyk, Krovetz,
Rogaway: UMAC, CRYPTO '99; RFC 4418).

A chunk, filled up with zeros, is cut in parts of 64 rows of 256 vectors of 16 bytes, read as
little-endian words. Each column of a part is hashed with the first key, the sums of all columns of
the chunk with the second one. Two different contents of a chunk have the same digest with a
probability of at most 2^-127, whatever they are: swapped, shifted, zeros of either sign, or made by
a reader of this text. Only the key has to be unknown to makers of contents, so a process draws one
at random, and neither it nor a digest leaves the process.

A device computes digests as fast as it reads, because sums do not depend on the order of its
blocks. `chunks.cu` is the kernel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from holdfast.regions.state.arrays.chunks import Flags

Digests: TypeAlias = "npt.NDArray[np.uint64]"
"""Four sums for each chunk, of shape ``(chunks, 4)``: 32 bytes."""

# The same values as in `chunks.cu`.
THREADS: Final = 256
ROWS: Final = 64
PASSES: Final = 4
VECTOR_WORDS: Final = 4
PART_BYTES: Final = ROWS * THREADS * VECTOR_WORDS * 4


def parts_of(chunk_bytes: int) -> int:
    """Return the number of parts of a chunk."""
    return -(-chunk_bytes // PART_BYTES)


@dataclass(frozen=True)
class DigestKey:
    """The secret of digests: words of 32 bits.

    `rows` is the key of the columns: 262 words, and two that nothing uses. `parts` is the key of
    their sums: 2,048 words for each part, and 6.
    """

    rows: npt.NDArray[np.uint32]
    parts: npt.NDArray[np.uint32]

    @classmethod
    def random(cls, chunk_bytes: int) -> DigestKey:
        """Draw a key for chunks of a size."""
        columns = parts_of(chunk_bytes) * THREADS
        # Each of the `PASSES` moves by two words.
        words = (ROWS + 2) * VECTOR_WORDS, columns * 2 * PASSES + 2 * (PASSES - 1)
        rows, parts = (np.frombuffer(os.urandom(4 * count), np.uint32) for count in words)
        return cls(rows, parts)


def unchanged_chunks(found: Digests, before: Digests) -> Flags:
    """Compare digests, by chunk."""
    flags: Flags = (found == before).all(axis=1)
    return flags
