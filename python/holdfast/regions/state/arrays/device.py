"""The interface between array states and a device; `arrays.gpu` has CUDA's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from holdfast._core import Piece
from holdfast.regions.base.saved import Append, StoredPiece
from holdfast.regions.state.arrays.chunks import Flags, Layout, Places, Run
from holdfast.regions.state.arrays.digests import Digests
from holdfast.regions.state.arrays.host import (
    Bytes,
    C,
    Declared,
    FrozenArray,
    LargeArray,
    drained,
)
from holdfast.regions.state.arrays.writing import WRITTEN_AT_ONCE

#: Buffers of a lane, used in turn: WRITTEN_AT_ONCE, and one that is fetched ahead.
BUFFERS: Final = WRITTEN_AT_ONCE + 1

Image = Any
"""Bytes on the device, as one-dimensional array of uint8."""


class Fetch(Protocol):
    """A copy to the host that was begun."""

    def wait(self) -> Bytes:
        """Return the bytes once they are there; see `BUFFERS` for how long they are valid."""


class PendingDigests(Protocol):
    """Digests that a device was asked for."""

    def wait(self) -> Digests:
        """Return the digests once they are there."""

    def end(self) -> None:
        """Wait until the device is done with the array. To be called in any case."""


class Lane(Protocol):
    """Queues of work on the device, with page-locked buffers; one thread uses it at a time.

    `digests` and `unchanged` raise MemoryError if the device has no room for the results.
    """

    def digests(self, image: Image, chunk_bytes: int) -> Digests:
        """Compute the digests of the chunks of an image."""

    def unchanged(self, image: Image, before: Image, chunk_bytes: int) -> Flags:
        """Compare two images of whole chunks; by chunk, whether all bytes are equal."""

    def fetch(self, image: Image, run: Run) -> Fetch:
        """Begin to copy some bytes to the host: into the buffers in turn."""


class Device(Protocol):
    """The memory and the work that array states need of a device.

    Work on an array follows the work that the operator queued. It is complete on return, or when
    its digests ended. Only the last chunk of an array may be shorter than `chunk_bytes`. `copy`,
    `digests`, `room` and `set_aside` raise MemoryError if the device has no room.
    """

    @property
    def buffer_bytes(self) -> int:
        """Size of each page-locked buffer, in bytes: the largest `Run` that can be fetched."""

    def copy(self, array: Any, image_bytes: int) -> Image:
        """Copy an array on the device, with zeros up to `image_bytes`."""

    def view(self, array: Any) -> Image:
        """Return the bytes of an array, not copied if they are in C order."""

    def digests(
        self,
        array: Any,
        chunk_bytes: int,
        *,
        before: Digests | None = None,
        room: Image | None = None,
    ) -> PendingDigests:
        """Begin to compute the digests of an array's chunks.

        Chunks whose digests differ from `before` go to `room`, one after the other, while they fit.
        """

    def room(self, nbytes: int) -> Image:
        """Return memory of the device, with any content."""

    def set_aside(
        self, array: Any, chunks: npt.NDArray[np.uint32], chunk_bytes: int, room: Image
    ) -> None:
        """Copy the chunks with these numbers to `room`, which is large enough, in their order."""

    def lane(self) -> AbstractContextManager[Lane]:
        """Lend a lane; waits for one where all are lent."""

    def upload(self, content: npt.NDArray[Any]) -> Any:
        """Return a new array on the device with this content."""


class ArrayOnDevice(LargeArray[C]):
    """A large array in the memory of a device."""

    def __init__(
        self,
        declared: Declared,
        array: Any,
        layout: Layout,
        stored: tuple[StoredPiece, ...] = (),
        *,
        device: Device,
    ) -> None:
        if layout.segment_bytes > device.buffer_bytes:
            raise ValueError(
                f"segment_bytes={layout.segment_bytes} is not allowed: expected at most "
                f"{device.buffer_bytes}, the size of a buffer"
            )
        self._device = device
        super().__init__(declared, array, layout, stored)

    def _frozen_on_host(self, places: Places, keep: Flags, content: C | None) -> FrozenArray:
        """Copy the chunks that are not kept to host memory, while the operator waits."""
        copies: deque[tuple[Run, Bytes]] = deque()
        if not keep.all():
            image = self._device.view(self._array)
            with self._device.lane() as lane:
                for run, data in fetched(lane, image, self._runs(keep)):
                    copies.append((run, data.copy()))

        def write(append: Append) -> list[Piece]:
            return self._noted(self._write(places, keep, drained(copies), append), content)

        return FrozenArray(self._declared, write)


def fetched(lane: Lane, image: Image, wanted: Iterable[Run]) -> Iterator[tuple[Run, Bytes]]:
    """Copy parts of an image to the host, each while its predecessor is used.

    A run fits a buffer; its content is valid until `WRITTEN_AT_ONCE` more were asked for.
    """
    before: tuple[Run, Fetch] | None = None
    for run in wanted:
        fetch = lane.fetch(image, run)
        if before is not None:
            yield before[0], before[1].wait()
        before = (run, fetch)
    if before is not None:
        yield before[0], before[1].wait()
