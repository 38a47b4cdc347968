"""Large array states in the memory of a device: what a snapshot copies, and when.

The operator waits for one copy from device to device. What changed is found afterwards, on the
device, by comparing that copy with the one of the last written snapshot; only those chunks are
copied to the host, through a few page-locked buffers, while earlier ones are being written.

The price is memory of the device: one copy of the array between snapshots, a second one while a
snapshot is taken. Digests in place of the copy would save it, but cost the device more than the
comparison does, and a comparison is exact. Where the device has no room for both, the snapshot does
without the older copy and is a full one; where it has none for one, the operator waits for the copy
to the host.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast._core import Piece
from holdfast.regions.state.arrays import Bytes, Declared, FrozenArray, FrozenHostArray
from holdfast.regions.state.chunks import (
    Flags,
    Layout,
    Places,
    Run,
    kept,
    pieces,
    places_of,
    runs,
    write_runs,
)
from holdfast.regions.state.saved import Append, Lease, StoredPiece

if TYPE_CHECKING:
    import numpy.typing as npt

LOG: Final = logging.getLogger(__name__)

Image = Any
"""Bytes of an array on the device, as one-dimensional array of uint8 that does not change."""


class Fetch(Protocol):
    """A copy to the host that was begun."""

    def wait(self) -> Bytes:
        """Return the bytes once they are there; valid until the next but one `Lane.fetch`."""


class Lane(Protocol):
    """A queue of work on the device, with two page-locked buffers; one thread uses it at a time."""

    def unchanged(self, image: Image, before: Image, chunk_bytes: int) -> Flags:
        """Compare two images of whole chunks; by chunk, whether all bytes are equal."""

    def fetch(self, image: Image, run: Run) -> Fetch:
        """Begin to copy some bytes to the host: into the buffers in turn."""


class Device(Protocol):
    """What array states need of a device."""

    @property
    def buffer_bytes(self) -> int:
        """Size of each page-locked buffer, in bytes: the largest `Run` that can be fetched."""

    def copy(self, array: Any, image_bytes: int) -> Image:
        """Copy an array on the device, with zeros up to `image_bytes`; complete on return.

        Raises
        ------
        MemoryError
            If the device has no room.
        """

    def view(self, array: Any) -> Image:
        """Return the bytes of an array as they are, not copied if they are in C order.

        What was queued to change them is done on return.
        """

    def lane(self) -> AbstractContextManager[Lane]:
        """Lend a lane; waits for one where all are lent."""

    def upload(self, content: npt.NDArray[Any]) -> Any:
        """Return a new array on the device with this content; complete on return."""


@dataclass(frozen=True)
class _Written:
    """The last written snapshot: where its chunks lie, and its copy on the device."""

    places: Places
    image: Image


class DeviceArray:
    """A large array on a device.

    Parameters
    ----------
    declared : Declared
        What it is.
    array : cupy.ndarray
        The operator's.
    layout : Layout
        How it is cut.
    stored : tuple of StoredPiece
        Where its present content lies; empty if nowhere.
    device : Device
        Where it is.

    Raises
    ------
    ValueError
        If a segment would be larger than the device's buffers.
    """

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
        self._declared = declared
        self._array = array
        self._layout = layout
        self._device = device
        self._written: _Written | None = None
        if stored and (image := self._copied()) is not None:
            self._written = _Written(places_of(stored, declared.nbytes, layout), image)

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `holdfast.regions.state.arrays.ArrayState`."""
        self._declared.check(self._array)
        image = self._copied()
        if image is not None:
            return FrozenDeviceArray(self, image, lease)
        LOG.warning(
            "%s: the device has no room for a copy of %d bytes, so the operator waits until it is "
            "in host memory",
            self._declared.where,
            self._declared.nbytes,
        )
        return self._frozen_on_host()

    # --- details --------------------------------------------------------------------------------

    def _copied(self) -> Image | None:
        while True:
            try:
                chunks = self._layout.chunks(self._declared.nbytes)
                return self._device.copy(self._array, chunks * self._layout.chunk_bytes)
            except MemoryError:
                if self._written is None:
                    return None
                # Its copy makes room; nothing is known to be unchanged then.
                self._written = None

    def _frozen_on_host(self) -> FrozenArray:
        import numpy as np

        nbytes, layout = self._declared.nbytes, self._layout
        keep = np.zeros(layout.chunks(nbytes), np.bool_)
        image = self._device.view(self._array)
        with self._device.lane() as lane:
            copies = [
                (run, content.copy())
                for run, content in fetched(lane, image, runs(keep, nbytes, layout))
            ]
        return FrozenHostArray(
            self._declared,
            layout,
            [None] * len(keep),
            keep,
            copies,
            digests=b"",  # no later snapshot compares with them
            on_written=lambda places, digests: None,
        )

    def _write(self, image: Image, lease: Lease, append: Append) -> list[Piece]:
        import numpy as np

        nbytes, layout, written = self._declared.nbytes, self._layout, self._written
        keep = np.zeros(layout.chunks(nbytes), np.bool_)
        places: Places = [None] * len(keep)
        with self._device.lane() as lane:
            if written is not None:
                places = written.places
                unchanged = lane.unchanged(image, written.image, layout.chunk_bytes)
                keep = kept(places, unchanged, nbytes, layout, lease)
            contents = (
                (run, content.data)
                for run, content in fetched(lane, image, runs(keep, nbytes, layout))
            )
            now = write_runs(places, keep, contents, layout, append)
        self._written = _Written(now, image)
        return pieces(now, nbytes, layout)


class FrozenDeviceArray:
    """A copy of an array on its device.

    Parameters
    ----------
    array : DeviceArray
        The array.
    image : Image
        Its content.
    lease : callable
        Asks which older segments the attempt may refer to.
    """

    def __init__(self, array: DeviceArray, image: Image, lease: Lease) -> None:
        declared = array._declared
        self.name = declared.name
        self.dtype = declared.dtype.str
        self.shape = declared.shape
        self._array = array
        self._image = image
        self._lease = lease

    def write(self, append: Append) -> list[Piece]:
        """See `holdfast.regions.state.arrays.FrozenArray`."""
        return self._array._write(self._image, self._lease, append)


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
