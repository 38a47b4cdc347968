"""What array states need of a device, see `holdfast.regions.state.gpu` for CUDA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.regions.state.arrays import Bytes
from holdfast.regions.state.chunks import Flags, Layout, Run
from holdfast.regions.state.device_digests import Digests

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Image = Any
"""Bytes on the device, as one-dimensional array of uint8."""


class Fetch(Protocol):
    """A copy to the host that was begun."""

    def wait(self) -> Bytes:
        """Return the bytes once they are there; valid until the next but one `Lane.fetch`."""


class Lane(Protocol):
    """A queue of work on the device, with two page-locked buffers; one thread uses it at a time."""

    def digests(self, image: Image, chunk_bytes: int) -> Digests:
        """Compute the digests of the chunks of an image.

        Raises
        ------
        MemoryError
            If the device has no room for them.
        """

    def unchanged(self, image: Image, before: Image, chunk_bytes: int) -> Flags:
        """Compare two images of whole chunks; by chunk, whether all bytes are equal.

        Raises
        ------
        MemoryError
            If the device has no room for what lies in between.
        """

    def fetch(self, image: Image, run: Run) -> Fetch:
        """Begin to copy some bytes to the host: into the buffers in turn."""


class Device(Protocol):
    """What array states need of a device.

    What is done with an array is done after what the operator queued, and complete on return.
    """

    @property
    def buffer_bytes(self) -> int:
        """Size of each page-locked buffer, in bytes: the largest `Run` that can be fetched."""

    def copy(self, array: Any, image_bytes: int) -> Image:
        """Copy an array on the device, with zeros up to `image_bytes`.

        Raises
        ------
        MemoryError
            If the device has no room.
        """

    def view(self, array: Any) -> Image:
        """Return the bytes of an array as they are, not copied if they are in C order."""

    def digests(self, array: Any, chunk_bytes: int) -> Digests:
        """Compute the digests of an array's chunks.

        Raises
        ------
        MemoryError
            If the device has no room for them.
        """

    def room(self, nbytes: int) -> Image:
        """Return memory of the device, with any content.

        Raises
        ------
        MemoryError
            If the device has not so much.
        """

    def set_aside(
        self, array: Any, chunks: npt.NDArray[np.uint32], chunk_bytes: int, room: Image
    ) -> None:
        """Copy some chunks of an array to `room`, one behind the other.

        Parameters
        ----------
        array : array on the device
            The array.
        chunks : array of uint32
            Which ones, in order.
        chunk_bytes : int
            Size of a chunk; the last one of the array may be shorter.
        room : Image
            Large enough for all of them.

        Raises
        ------
        MemoryError
            If the device has no room for `chunks`.
        """

    def lane(self) -> AbstractContextManager[Lane]:
        """Lend a lane; waits for one where all are lent."""

    def upload(self, content: npt.NDArray[Any]) -> Any:
        """Return a new array on the device with this content."""


def check_layout(layout: Layout, device: Device) -> None:
    """Refuse segments that are larger than the device's buffers, with a ValueError."""
    if layout.segment_bytes > device.buffer_bytes:
        raise ValueError(
            f"segment_bytes={layout.segment_bytes} is not allowed: expected at most "
            f"{device.buffer_bytes}, the size of a buffer"
        )


def fetched(lane: Lane, image: Image, wanted: Iterable[Run]) -> Iterator[tuple[Run, Bytes]]:
    """Copy parts of an image to the host, each while its predecessor is being used.

    Parameters
    ----------
    lane : Lane
        Lent for as long as this goes on.
    image : Image
        The image.
    wanted : iterable of Run
        Each at most as large as a buffer.

    Yields
    ------
    (Run, array of uint8)
        Valid until the next one is asked for.
    """
    before: tuple[Run, Fetch] | None = None
    for run in wanted:
        fetch = lane.fetch(image, run)
        if before is not None:
            yield before[0], before[1].wait()
        before = (run, fetch)
    if before is not None:
        yield before[0], before[1].wait()


def copied_to_host(device: Device, array: Any, wanted: Iterable[Run]) -> list[tuple[Run, Bytes]]:
    """Copy parts of an array to host memory of their own, while the operator waits."""
    image = device.view(array)
    with device.lane() as lane:
        return [(run, content.copy()) for run, content in fetched(lane, image, wanted)]
