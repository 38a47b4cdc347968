"""Array states in host memory: what a snapshot copies of them, and when.

A snapshot of an array has two steps. `freeze` takes its content as it is at that moment, and is
all the operator waits for. `FrozenArray.write` puts it into segments, later.

A large array knows where its chunks lie in the segments of its last written snapshot, and their
digests. A region goes on with the same instance only from exactly the state it last wrote, so that
snapshot is the one of its latest completed checkpoint; after a failure a new instance is made,
which begins with the pieces of the checkpoint it restores. Should that ever not hold, the manager
refuses the lease of what no checkpoint has, and the chunk is written again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from holdfast._core import Piece, chunk_digests
from holdfast.regions.state.chunks import (
    Flags,
    Holders,
    Layout,
    Places,
    Run,
    kept,
    pieces,
    places_of,
    runs,
    write_runs,
)
from holdfast.regions.state.saved import Append, Lease, SavedState, StateError, StoredPiece

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Bytes: TypeAlias = "npt.NDArray[np.uint8]"
"""One dimension, in one piece."""


class FrozenArray(Protocol):
    """Content of a large array at one moment, not written yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def write(self, append: Append) -> list[Piece]:
        """Write what no older segment has; returns where all of it lies, in order.

        Called once at most. Raises what `append` raises; then the instance is not used again.
        """


class ArrayState(Protocol):
    """A declared array."""

    def freeze(self, lease: Lease) -> SavedState | FrozenArray:
        """Take the content as it is now; independent of later changes."""


@dataclass(frozen=True)
class Declared:
    """What an array was declared as, and keeps.

    Parameters
    ----------
    name : str
        Its name.
    dtype : numpy.dtype
        Type of its items.
    shape : tuple of int
        Its shape.
    where : str
        Name and owner, for messages.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    where: str

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check(self, array: Any) -> None:
        """Refuse an array whose shape or type was set in place: it could not be restored."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise StateError(
                f"{self.where} was declared as {self.dtype.str} of shape {self.shape} and is now "
                f"{array.dtype.str} of shape {array.shape}; change its items, not the array itself"
            )


class SmallArray:
    """An array of one chunk at most: copied whole, written with the other small states.

    Parameters
    ----------
    declared : Declared
        What it is.
    array : numpy.ndarray or cupy.ndarray
        The operator's.
    xp : module
        Its array module.
    """

    def __init__(self, declared: Declared, array: Any, xp: Any) -> None:
        self._declared = declared
        self._array = array
        self._xp = xp

    def freeze(self, lease: Lease) -> SavedState:
        """See `ArrayState`."""
        declared = self._declared
        declared.check(self._array)
        # CuPy copies to the host by a function of its module; NumPy has no such function.
        to_host = getattr(self._xp, "asnumpy", None)
        host = to_host(self._array) if to_host is not None else self._array.copy()
        data = bytes_of(host).data.toreadonly()
        return SavedState(declared.name, "array", declared.dtype.str, declared.shape, data)


@dataclass(frozen=True)
class _Written:
    """The last written snapshot: where its chunks lie, and 16 bytes of digest for each."""

    places: Places
    holders: Holders
    digests: bytes


class HostArray:
    """A large NumPy array.

    To find what changed, a snapshot reads all of it once (xxh3-128 of every chunk), then copies the
    chunks that differ: no second copy is held between snapshots. An exact one holds such a copy and
    compares with it byte by byte.

    Parameters
    ----------
    declared : Declared
        What it is.
    array : numpy.ndarray
        The operator's.
    layout : Layout
        How it is cut.
    stored : tuple of StoredPiece
        Where its present content lies; empty if nowhere.
    exact : bool, default False
        Compare with a copy instead of digests.
    """

    def __init__(
        self,
        declared: Declared,
        array: npt.NDArray[Any],
        layout: Layout,
        stored: tuple[StoredPiece, ...] = (),
        *,
        exact: bool = False,
    ) -> None:
        self._declared = declared
        self._array = array
        self._layout = layout
        self._written: _Written | None = None
        data = bytes_of(array)
        # Of the last written snapshot. Before the first one, nothing asks for its content.
        self._copy = data.copy() if exact else None
        if stored:
            digests = b"" if exact else chunk_digests(data.data, layout.chunk_bytes)
            self._set_written(places_of(stored, data.nbytes, layout), digests)

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `ArrayState`."""
        import numpy as np

        self._declared.check(self._array)
        data = bytes_of(self._array)
        chunks = self._layout.chunks(data.nbytes)
        places: Places = [None] * chunks
        keep = np.zeros(chunks, np.bool_)
        digests = None if self._copy is None else b""
        if self._written is not None:
            places = self._written.places
            if self._copy is None:
                digests = chunk_digests(data.data, self._layout.chunk_bytes)
                unchanged = equal_digests(digests, self._written.digests)
            else:
                unchanged = equal_chunks(data, self._copy, self._layout)
            keep = kept(self._written.holders, unchanged, data.nbytes, self._layout, lease)
        return FrozenHostArray(
            self._declared,
            self._layout,
            places,
            keep,
            [
                (run, data[run.start : run.stop].copy())
                for run in runs(keep, data.nbytes, self._layout)
            ],
            digests=digests,
            on_written=self._set_written,
            copy=self._copy,
        )

    def _set_written(self, places: Places, digests: bytes) -> None:
        self._written = _Written(places, Holders.of(places), digests)


class FrozenHostArray:
    """Copies, in host memory, of the chunks that are to be written.

    Parameters
    ----------
    declared : Declared
        What the array is.
    layout : Layout
        How it is cut.
    places : sequence of Place or None
        Where its chunks lay before.
    keep : array of bool, one per chunk
        Which of them stay there.
    copies : sequence of (Run, array of uint8)
        The others, in order.
    digests : bytes or None
        Of all chunks; empty where no later snapshot compares with them. None only where none is
        kept: they are found while writing.
    on_written : callable
        Called with the places of all chunks, and their digests.
    copy : array of uint8, optional
        Copy of the whole array that becomes what was written.
    """

    def __init__(
        self,
        declared: Declared,
        layout: Layout,
        places: Places,
        keep: Flags,
        copies: Iterable[tuple[Run, Bytes]],
        *,
        digests: bytes | None,
        on_written: Callable[[Places, bytes], None],
        copy: Bytes | None = None,
    ) -> None:
        self.name = declared.name
        self.dtype = declared.dtype.str
        self.shape = declared.shape
        self._nbytes = declared.nbytes
        self._layout = layout
        self._places = places
        self._keep = keep
        self._copies = deque(copies)
        self._digests = digests
        self._on_written = on_written
        self._copy = copy

    def write(self, append: Append) -> list[Piece]:
        """See `FrozenArray`."""
        found: list[bytes] = []

        def contents() -> Iterator[tuple[Run, memoryview]]:
            # Taken off the list, so that memory is let go of as the writing goes on.
            while self._copies:
                run, data = self._copies.popleft()
                if self._digests is None:
                    found.append(chunk_digests(data.data, self._layout.chunk_bytes))
                if self._copy is not None:
                    self._copy[run.start : run.stop] = data
                yield run, data.data

        places = write_runs(self._places, self._keep, contents(), self._layout, append)
        self._on_written(places, b"".join(found) if self._digests is None else self._digests)
        return pieces(places, self._nbytes, self._layout)


def bytes_of(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of an array in C order; a copy only if it is not in C order."""
    import numpy as np

    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def equal_digests(found: bytes, before: bytes) -> Flags:
    """Compare digests of 16 bytes each, by chunk."""
    import numpy as np

    words = np.frombuffer(found, np.uint64) == np.frombuffer(before, np.uint64)
    flags: Flags = words.reshape(-1, 2).all(axis=1)
    return flags


def equal_chunks(data: Bytes, other: Bytes, layout: Layout) -> Flags:
    """Compare two contents of an array byte by byte, by chunk."""
    import numpy as np

    starts = range(0, data.nbytes, layout.chunk_bytes)
    ends = [(start, start + layout.chunk_bytes) for start in starts]
    return np.array([np.array_equal(data[start:stop], other[start:stop]) for start, stop in ends])
