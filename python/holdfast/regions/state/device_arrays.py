"""Large array states in the memory of a device: what a snapshot copies, and when.

No second copy of the array is held. The operator waits until the device has read all of it once,
for a digest of each chunk, and has copied aside the chunks whose digests are not those of the last
written snapshot; they come to the host afterwards, through a few page-locked buffers, while
earlier ones are being written. The room aside is a tenth of the array and is kept; see
`holdfast.regions.state.device_digests` for how unlikely it is that a change is missed.

Where more changed than fits in there:

- The snapshot takes as much memory of the device as it needs, until it is written.
- The next snapshot begins with a copy of the whole array, if the device has the room, and finds
  out what changed afterwards: an operator that changes much waits for one copy and no more. The
  copy is let go of when it is written. So is that of the first snapshot.
- If the device has not so much memory, the operator waits until what changed is in host memory.

Where the device cannot even hold the digests for a moment, everything counts as changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast._core import Piece
from holdfast.regions.state.arrays import Bytes, Declared, FrozenArray, FrozenHostArray
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
from holdfast.regions.state.device import Device, Image, check_layout, copied_to_host, fetched
from holdfast.regions.state.device_digests import Digests, unchanged_chunks
from holdfast.regions.state.saved import Append, Lease, StoredPiece

LOG: Final = logging.getLogger(__name__)

NO_ROOM: Final = (
    "%s: the device has no room for a copy of %d bytes, so the operator waits until it is in host "
    "memory"
)

#: The room aside is at most this part of the array; one chunk where that is less.
ROOM_PART: Final = 10


@dataclass(frozen=True)
class _Written:
    """The last written snapshot: where its chunks lie, and their digests."""

    places: Places
    holders: Holders
    digests: Digests


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
        check_layout(layout, device)
        self._declared = declared
        self._array = array
        self._layout = layout
        self._device = device
        room_chunks = max(declared.nbytes // ROOM_PART // layout.chunk_bytes, 1)
        self._room_bytes = room_chunks * layout.chunk_bytes
        # None until it is needed, and while a snapshot that was not written yet has it.
        self._room: Image | None = None
        self._much_changed = False
        self._written: _Written | None = None
        if stored:
            self._set_written(places_of(stored, declared.nbytes, layout), self._digests())

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `holdfast.regions.state.arrays.ArrayState`."""
        self._declared.check(self._array)
        if self._written is None or self._much_changed:
            image = self._image()
            if image is not None:
                return FrozenImage(self, image, lease)
        digests = self._digests()
        places, keep = self._kept(digests, lease)
        changed_bytes = self._changed_bytes(keep)
        copies: list[tuple[Run, Bytes]] = []
        if changed_bytes:
            room = self._filled_room(keep, changed_bytes)
            if room is not None:
                return FrozenChunks(self, room, places, keep, digests)
            LOG.warning(NO_ROOM, self._declared.where, changed_bytes)
            wanted = runs(keep, self._declared.nbytes, self._layout)
            copies = copied_to_host(self._device, self._array, wanted)
        return FrozenHostArray(
            self._declared,
            self._layout,
            places,
            keep,
            copies,
            digests=b"",  # those of the device count
            on_written=lambda now, _: self._set_written(now, digests),
        )

    # --- while the operator waits ---------------------------------------------------------------

    def _digests(self) -> Digests | None:
        try:
            return self._device.digests(self._array, self._layout.chunk_bytes)
        except MemoryError:
            return None

    def _kept(self, digests: Digests | None, lease: Lease) -> tuple[Places, Flags]:
        import numpy as np

        nbytes, layout, written = self._declared.nbytes, self._layout, self._written
        if digests is None or written is None:
            count = layout.chunks(nbytes)
            return [None] * count, np.zeros(count, np.bool_)
        unchanged = unchanged_chunks(digests, written.digests)
        keep = kept(written.holders, unchanged, nbytes, layout, lease)
        self._much_changed = self._changed_bytes(keep) > self._room_bytes
        return written.places, keep

    def _changed_bytes(self, keep: Flags) -> int:
        chunk_bytes = self._layout.chunk_bytes
        missing_bytes = 0 if keep[-1] else len(keep) * chunk_bytes - self._declared.nbytes
        return int((~keep).sum()) * chunk_bytes - missing_bytes

    def _image(self) -> Image | None:
        try:
            return self._device.copy(self._array, self._declared.nbytes)
        except MemoryError:
            return None

    def _filled_room(self, keep: Flags, nbytes: int) -> Image | None:
        import numpy as np

        chunks = (~keep).nonzero()[0].astype(np.uint32)
        room, self._room = self._room, None
        try:
            if room is None or nbytes > self._room_bytes:
                room = None  # lets go of the old one first
                room = self._new_room(nbytes)
            self._device.set_aside(self._array, chunks, self._layout.chunk_bytes, room)
        except MemoryError:
            return None
        return room

    def _new_room(self, nbytes: int) -> Image:
        if nbytes < self._room_bytes:
            try:
                return self._device.room(self._room_bytes)
            except MemoryError:
                pass  # this once only what is needed
        return self._device.room(nbytes)

    # --- in the background ----------------------------------------------------------------------

    def _write_image(self, image: Image, lease: Lease, append: Append) -> list[Piece]:
        layout = self._layout
        with self._device.lane() as lane:
            try:
                digests = lane.digests(image, layout.chunk_bytes)
            except MemoryError:
                digests = None
            places, keep = self._kept(digests, lease)
            contents = fetched(lane, image, runs(keep, self._declared.nbytes, layout))
            return self._write(places, keep, contents, digests, append)

    def _write_room(
        self,
        room: Image,
        places: Places,
        keep: Flags,
        digests: Digests | None,
        append: Append,
    ) -> list[Piece]:
        wanted = runs(keep, self._declared.nbytes, self._layout)
        with self._device.lane() as lane:
            contents = zip(
                wanted,
                (content for _, content in fetched(lane, room, _packed(wanted))),
                strict=True,
            )
            written = self._write(places, keep, contents, digests, append)
        if room.nbytes == self._room_bytes:
            self._room = room
        return written

    def _write(
        self,
        places: Places,
        keep: Flags,
        contents: Iterator[tuple[Run, Bytes]],
        digests: Digests | None,
        append: Append,
    ) -> list[Piece]:
        parts = ((run, content.data) for run, content in contents)
        now = write_runs(places, keep, parts, self._layout, append)
        self._set_written(now, digests)
        return pieces(now, self._declared.nbytes, self._layout)

    def _set_written(self, places: Places, digests: Digests | None) -> None:
        self._written = None
        if digests is not None:
            self._written = _Written(places, Holders.of(places), digests)


class _Frozen:
    """What all contents of an array at one moment have."""

    def __init__(self, array: DeviceArray) -> None:
        declared = array._declared
        self.name = declared.name
        self.dtype = declared.dtype.str
        self.shape = declared.shape
        self._array = array


class FrozenImage(_Frozen):
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
        super().__init__(array)
        self._image = image
        self._lease = lease

    def write(self, append: Append) -> list[Piece]:
        """See `holdfast.regions.state.arrays.FrozenArray`."""
        image, self._image = self._image, None
        return self._array._write_image(image, self._lease, append)


class FrozenChunks(_Frozen):
    """Copies, on its device, of the chunks of an array that are to be written.

    Parameters
    ----------
    array : DeviceArray
        The array.
    room : Image
        The chunks, one behind the other.
    places : sequence of Place or None
        Where all chunks lay before.
    keep : array of bool, one per chunk
        Which of them stay there; the others are in `room`.
    digests : Digests or None
        Of all chunks, where they are known.
    """

    def __init__(
        self,
        array: DeviceArray,
        room: Image,
        places: Places,
        keep: Flags,
        digests: Digests | None,
    ) -> None:
        super().__init__(array)
        self._room = room
        self._places = places
        self._keep = keep
        self._digests = digests

    def write(self, append: Append) -> list[Piece]:
        """See `holdfast.regions.state.arrays.FrozenArray`."""
        room, self._room = self._room, None
        return self._array._write_room(room, self._places, self._keep, self._digests, append)


def _packed(wanted: list[Run]) -> Iterator[Run]:
    """Where the same bytes lie once they are one behind the other."""
    start = 0
    for run in wanted:
        stop = start + run.stop - run.start
        yield Run(start, stop)
        start = stop
