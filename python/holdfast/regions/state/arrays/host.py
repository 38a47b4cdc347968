"""Array states in host memory: which chunks a snapshot copies, and when.

A snapshot of an array has two steps. `freeze` takes the content, and the operator waits for nothing
else. `FrozenArray.write` puts the content into segments later.

A large array knows the places and digests of the chunks of its last written snapshot. An instance
continues only from exactly the state that it last wrote, so that snapshot belongs to the latest
completed checkpoint of its region. After a failure a new instance begins with the pieces of the
restored checkpoint. If that is ever untrue, the manager refuses to lease segments that no
checkpoint has, and these chunks are written again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast._core import Piece, chunk_digests
from holdfast.regions.base.saved import Append, Lease, SavedState, StateError, StoredPiece
from holdfast.regions.state.arrays.chunks import (
    Flags,
    Granted,
    Holders,
    Layout,
    Place,
    Places,
    Run,
    kept,
    pieces,
    places_of,
    runs,
)
from holdfast.regions.state.arrays.writing import write_runs

C = TypeVar("C")

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
"""One dimension, in one piece."""


@dataclass(frozen=True)
class Declared:
    """Name, type and shape of an array, which it keeps."""

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


class FrozenArray:
    """Unwritten content of a large array at one moment.

    `write` writes chunks that no older segment has, and returns the places of all, in order.
    """

    def __init__(self, declared: Declared, write: Callable[[Append], list[Piece]]) -> None:
        self.name = declared.name
        self.dtype = declared.dtype.str
        self.shape = declared.shape
        self._write: Callable[[Append], list[Piece]] | None = write

    def write(self, append: Append) -> list[Piece]:
        """Write the content once and free it. If `append` raises, do not use the instance again."""
        write, self._write = self._write, None
        if write is None:
            raise RuntimeError(f"{self.name!r} was written before")
        return write(append)


class ArrayState(Protocol):
    """A declared array."""

    def freeze(self, lease: Lease) -> SavedState | FrozenArray:
        """Take the current content, independent of later changes."""


@dataclass(frozen=True, eq=False)
class SmallArray:
    """An array of one chunk at most: copied whole, written with the other small states."""

    declared: Declared
    array: Any
    xp: Any

    def freeze(self, lease: Lease) -> SavedState:
        """See `ArrayState`."""
        declared = self.declared
        declared.check(self.array)
        # CuPy copies to the host by a function of its module; NumPy has no such function.
        to_host = getattr(self.xp, "asnumpy", np.copy)
        data = bytes_of(to_host(self.array)).data.toreadonly()
        return SavedState(declared.name, "array", declared.dtype.str, declared.shape, data)


class Written(Generic[C]):
    """The last written snapshot of an array: the places of its chunks, and its content.

    The content, digests or a copy of the array, is compared with the next snapshot.
    """

    def __init__(self, places: Places, content: C) -> None:
        self.places = places
        self.holders = Holders.of(places)
        self.content = content


class LargeArray(Generic[C]):
    """An array of more than one chunk, of which a snapshot writes changed chunks.

    `stored` has the places of its present content in segments, if there are any.
    """

    def __init__(
        self, declared: Declared, array: Any, layout: Layout, stored: tuple[StoredPiece, ...]
    ) -> None:
        self._declared = declared
        self._array = array
        self._layout = layout
        self._written: Written[C] | None = None
        if stored and (content := self._stored_content()) is not None:
            self._written = Written(places_of(stored, declared.nbytes, layout), content)

    def _stored_content(self) -> C | None:
        """Return the content that the first snapshot of a restored array is compared with."""
        raise NotImplementedError

    def _nothing_kept(self) -> tuple[Places, Flags]:
        count = self._layout.chunks(self._declared.nbytes)
        return [None] * count, np.zeros(count, np.bool_)

    def _kept(self, written: Written[C], unchanged: Flags, granted: Granted) -> Flags:
        return kept(written.holders, unchanged, self._declared.nbytes, self._layout, granted)

    def _runs(self, keep: Flags) -> list[Run]:
        return runs(keep, self._declared.nbytes, self._layout)

    def _write(
        self, places: Places, keep: Flags, contents: Iterable[tuple[Run, Bytes]], append: Append
    ) -> list[Place]:
        buffers = ((run, content.data) for run, content in contents)
        return write_runs(places, keep, buffers, self._layout, append)

    def _noted(self, now: list[Place], content: C | None) -> list[Piece]:
        """Note a written snapshot; without content everything counts as changed next time."""
        self._written = None if content is None else Written(now, content)
        return pieces(now, self._declared.nbytes, self._layout)


class HostArray(LargeArray[bytes]):
    """A large NumPy array.

    A snapshot reads all of it once (xxh3-128 of every chunk) and copies the chunks that differ. An
    exact array holds a second copy between snapshots, and compares with it byte by byte.
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
        # The last written snapshot. Nothing reads it before there is one.
        self._copy = bytes_of(array).copy() if exact else None
        super().__init__(declared, array, layout, stored)

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `ArrayState`."""
        self._declared.check(self._array)
        data = bytes_of(self._array)
        places, keep = self._nothing_kept()
        digests = None
        if (written := self._written) is not None:
            places = written.places
            digests = self._stored_content()
            if self._copy is None:
                unchanged = equal_digests(digests, written.content)
            else:
                unchanged = equal_chunks(data, self._copy, self._layout)
            keep = self._kept(written, unchanged, written.holders.granted_by(lease))
        copies = deque((run, data[run.start : run.stop].copy()) for run in self._runs(keep))
        write = partial(self._write_copies, places, keep, copies, digests)
        return FrozenArray(self._declared, write)

    def _stored_content(self) -> bytes:
        """Return the digests of all chunks; an exact array needs none."""
        if self._copy is not None:
            return b""
        return chunk_digests(bytes_of(self._array).data, self._layout.chunk_bytes)

    def _write_copies(
        self,
        places: Places,
        keep: Flags,
        copies: deque[tuple[Run, Bytes]],
        digests: bytes | None,
        append: Append,
    ) -> list[Piece]:
        found: list[bytes] = []

        def contents() -> Iterator[tuple[Run, Bytes]]:
            for run, data in drained(copies):
                if self._copy is not None:
                    self._copy[run.start : run.stop] = data
                elif digests is None:  # the first snapshot has all chunks
                    found.append(chunk_digests(data.data, self._layout.chunk_bytes))
                yield run, data

        now = self._write(places, keep, contents(), append)
        return self._noted(now, b"".join(found) if digests is None else digests)


def drained(copies: deque[tuple[Run, Bytes]]) -> Iterator[tuple[Run, Bytes]]:
    """Take copies off a queue, so that writing frees their memory."""
    while copies:
        yield copies.popleft()


def bytes_of(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of an array in C order; a copy only if it is not in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def equal_digests(found: bytes, before: bytes) -> Flags:
    """Compare digests of 16 bytes each, by chunk."""
    words = np.frombuffer(found, np.uint64) == np.frombuffer(before, np.uint64)
    flags: Flags = words.reshape(-1, 2).all(axis=1)
    return flags


def equal_chunks(data: Bytes, other: Bytes, layout: Layout) -> Flags:
    """Compare two contents of an array byte by byte, by chunk."""
    starts = range(0, data.nbytes, layout.chunk_bytes)
    ends = [(start, start + layout.chunk_bytes) for start in starts]
    return np.array([np.array_equal(data[start:stop], other[start:stop]) for start, stop in ends])
