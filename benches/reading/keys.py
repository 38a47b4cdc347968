"""The keys and rows of the checkpoint, and the state that its query has to have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Keys that the newest batch changes.
CHANGED = 1_000

#: Files of one batch each: large ones, then small ones between which stores merge.
_LARGE, _SMALL, _SMALL_ROWS = 10, 12, 100
#: A prime: neighbours in a file are far from each other in the order of keys.
_STEP = 2_654_435_761


def numbers(keys: int, *, first: int | None = None) -> np.ndarray:
    """Return the numbers of all keys, or of the first, in the order in which their rows come."""
    return np.arange(keys if first is None else first, dtype=np.int64) * _STEP % keys


def texts(of: np.ndarray) -> pa.Array:
    """Return keys by their numbers."""
    digits = pc.utf8_lpad(pa.array(of).cast(pa.string()), 12, "0")
    return pc.binary_join_element_wise("customer", digits, "-")


def files(keys: int) -> Iterator[pa.Table]:
    """Yield the rows of each batch: every key once, and in the last one `CHANGED` of them again."""
    found = numbers(keys)
    large, small = np.split(found, [keys - _SMALL * _SMALL_ROWS])
    for part in [*np.array_split(large, _LARGE), *np.array_split(small, _SMALL), found[:CHANGED]]:
        yield pa.table({"key": texts(part), "value": part})


def expected(of: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts and sums of keys, by their numbers."""
    counts = np.isin(of, numbers(keys, first=CHANGED)) + 1
    return counts, counts * of
