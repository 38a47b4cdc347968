"""Large array states on a device whose changes are found by comparison with a copy.

The operator waits for one copy from device to device. What changed is found afterwards, on the
device, by comparing that copy with the one of the last written snapshot, so nothing is left to
chance. The price is memory of the device: one copy of the array between snapshots, a second one
while a snapshot is taken. Where the device has no room for both, the snapshot does without the
older copy and is a full one; where it has none for one, the operator waits for the copy to the
host. Where it has none for the comparison, everything counts as changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast._core import Piece
from holdfast.regions.state.arrays import Declared, FrozenArray, FrozenHostArray
from holdfast.regions.state.chunks import (
    Flags,
    Holders,
    Layout,
    Places,
    kept,
    pieces,
    places_of,
    runs,
    write_runs,
)
from holdfast.regions.state.device import (
    Device,
    Image,
    Lane,
    check_layout,
    copied_to_host,
    fetched,
)
from holdfast.regions.state.device_arrays import LOG, NO_ROOM
from holdfast.regions.state.saved import Append, Lease, StoredPiece


@dataclass(frozen=True)
class _Written:
    """The last written snapshot: where its chunks lie, and its copy on the device."""

    places: Places
    image: Image


class ExactDeviceArray:
    """A large array on a device that is compared with its last snapshot byte by byte.

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
        check_layout(layout, device)
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
            return FrozenExactArray(self, image, lease)
        LOG.warning(NO_ROOM, self._declared.where, self._declared.nbytes)
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
        keep = self._nothing()
        return FrozenHostArray(
            self._declared,
            self._layout,
            [None] * len(keep),
            keep,
            copied_to_host(
                self._device, self._array, runs(keep, self._declared.nbytes, self._layout)
            ),
            digests=b"",  # no later snapshot compares with them
            on_written=lambda places, digests: None,
        )

    def _write(self, image: Image, lease: Lease, append: Append) -> list[Piece]:
        nbytes, layout = self._declared.nbytes, self._layout
        keep = self._nothing()
        places: Places = [None] * len(keep)
        with self._device.lane() as lane:
            if (written := self._written) is not None:
                places = written.places
                unchanged = self._unchanged(lane, image, written)
                keep = kept(Holders.of(places), unchanged, nbytes, layout, lease)
            contents = (
                (run, content.data)
                for run, content in fetched(lane, image, runs(keep, nbytes, layout))
            )
            now = write_runs(places, keep, contents, layout, append)
        self._written = _Written(now, image)
        return pieces(now, nbytes, layout)

    def _unchanged(self, lane: Lane, image: Image, written: _Written) -> Flags:
        try:
            return lane.unchanged(image, written.image, self._layout.chunk_bytes)
        except MemoryError:
            return self._nothing()

    def _nothing(self) -> Flags:
        import numpy as np

        return np.zeros(self._layout.chunks(self._declared.nbytes), np.bool_)


class FrozenExactArray:
    """A copy of an array on its device.

    Parameters
    ----------
    array : ExactDeviceArray
        The array.
    image : Image
        Its content.
    lease : callable
        Asks which older segments the attempt may refer to.
    """

    def __init__(self, array: ExactDeviceArray, image: Image, lease: Lease) -> None:
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
