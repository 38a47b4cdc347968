"""Large array states in the memory of a device: which chunks a snapshot copies, and when.

There is no second copy of the array. While the operator waits, the device reads the array once for
a digest of each chunk. It copies chunks whose digests differ from the last written snapshot into a
room aside. They reach the host afterwards, through a few page-locked buffers, while earlier ones
are written. The room is a tenth of the array and is kept. For how unlikely it is that a change is
missed, see `holdfast.regions.state.arrays.digests`.

If the changes do not fit in there:

- The snapshot takes as much memory of the device as it needs, until it is written.
- The next snapshot begins with a copy of the whole array, if the device has the room, and finds
  the changes afterwards: an operator that changes much waits for only one copy. The copy is freed
  when it is written. The first snapshot does the same.
- If the device has too little memory, the operator waits until the changes are in host memory.

If the device has no memory even for the digests, everything counts as changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from holdfast._core import Piece
from holdfast.regions.base.saved import Append, Lease
from holdfast.regions.state.arrays.chunks import Flags, Granted, Places, Run
from holdfast.regions.state.arrays.device import (
    ArrayOnDevice,
    Image,
    PendingDigests,
    fetched,
)
from holdfast.regions.state.arrays.digests import Digests, unchanged_chunks
from holdfast.regions.state.arrays.host import FrozenArray, Written

LOG: Final = logging.getLogger(__name__)

NO_ROOM: Final = (
    "%s: the device has no room for a copy of %d bytes, so the operator waits until it is in host "
    "memory"
)

#: The room aside is at most this part of the array, but at least one chunk.
ROOM_PART: Final = 10


@dataclass(frozen=True)
class _Found:
    """Places of an array's chunks, the chunks that remain there, and the digests of all.

    `is_aside` says that the room already has the others.
    """

    places: Places
    keep: Flags
    digests: Digests | None
    is_aside: bool = False


class DeviceArray(ArrayOnDevice[Digests]):
    """A large array on a device whose changes are found by digests."""

    # None until it is needed, and while an unwritten snapshot has it.
    _room: Image | None = None
    _much_changed = False

    @property
    def _room_bytes(self) -> int:
        chunk_bytes = self._layout.chunk_bytes
        return max(self._declared.nbytes // ROOM_PART // chunk_bytes, 1) * chunk_bytes

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `holdfast.regions.state.arrays.host.ArrayState`."""
        self._declared.check(self._array)
        if self._written is None or self._much_changed:
            with suppress(MemoryError):
                image = self._device.copy(self._array, self._declared.nbytes)
                return FrozenArray(self._declared, partial(self._write_image, image, lease))
        found = self._compared(lease)
        if changed_bytes := self._changed_bytes(found.keep):
            if found.is_aside:
                room, self._room = self._room, None
            else:
                room = self._filled_room(found.keep, changed_bytes)
            if room is not None:
                return FrozenArray(self._declared, partial(self._write_room, room, found))
            LOG.warning(NO_ROOM, self._declared.where, changed_bytes)
        return self._frozen_on_host(found.places, found.keep, found.digests)

    def _stored_content(self) -> Digests | None:
        if (reading := self._begun(None, None)) is None:
            return None
        reading.end()
        return reading.wait()

    def _compared(self, lease: Lease) -> _Found:
        if (written := self._written) is None:
            return _Found(*self._nothing_kept(), self._stored_content())
        room = self._usual_room()
        reading = self._begun(written.content, room)
        if reading is None and room is not None:
            room = self._room = None  # perhaps it leaves too little memory
            reading = self._begun(None, None)
        if reading is None:
            return _Found(*self._nothing_kept(), None)
        try:
            # The manager answers while the device reads the array, and the device copies while this
            # finds other chunks to write.
            granted = written.holders.leased_all(lease)
            digests = reading.wait()
            unchanged = unchanged_chunks(digests, written.content)
            keep = self._kept(written, unchanged, granted)
        finally:
            reading.end()
        fits = room is not None and not self._much_changed
        is_aside = fits and bool((keep == unchanged).all())
        return _Found(written.places, keep, digests, is_aside)

    def _begun(self, before: Digests | None, room: Image | None) -> PendingDigests | None:
        try:
            return self._device.digests(
                self._array, self._layout.chunk_bytes, before=before, room=room
            )
        except MemoryError:
            return None

    def _kept(self, written: Written[Digests], unchanged: Flags, granted: Granted) -> Flags:
        keep = super()._kept(written, unchanged, granted)
        self._much_changed = self._changed_bytes(keep) > self._room_bytes
        return keep

    def _changed_bytes(self, keep: Flags) -> int:
        chunk_bytes = self._layout.chunk_bytes
        missing_bytes = 0 if keep[-1] else len(keep) * chunk_bytes - self._declared.nbytes
        return int((~keep).sum()) * chunk_bytes - missing_bytes

    def _filled_room(self, keep: Flags, nbytes: int) -> Image | None:
        chunks = (~keep).nonzero()[0].astype(np.uint32)
        room, self._room = self._room, None
        try:
            if room is None or nbytes > self._room_bytes:
                room = None  # drops the old one first
                room = self._device.room(nbytes)
            self._device.set_aside(self._array, chunks, self._layout.chunk_bytes, room)
        except MemoryError:
            return None
        return room

    def _usual_room(self) -> Image | None:
        if self._room is None:
            with suppress(MemoryError):  # this once only as much as needed
                self._room = self._device.room(self._room_bytes)
        return self._room

    def _write_image(self, image: Image, lease: Lease, append: Append) -> list[Piece]:
        digests = None
        places, keep = self._nothing_kept()
        with self._device.lane() as lane:
            with suppress(MemoryError):
                digests = lane.digests(image, self._layout.chunk_bytes)
            if digests is not None and (written := self._written) is not None:
                unchanged = unchanged_chunks(digests, written.content)
                places = written.places
                keep = self._kept(written, unchanged, written.holders.granted_by(lease))
            contents = fetched(lane, image, self._runs(keep))
            return self._noted(self._write(places, keep, contents, append), digests)

    def _write_room(self, room: Image, found: _Found, append: Append) -> list[Piece]:
        """Write the chunks that are not kept, one after the other in a room."""
        wanted = self._runs(found.keep)
        with self._device.lane() as lane:
            parts = (content for _, content in fetched(lane, room, _packed(wanted)))
            contents = zip(wanted, parts, strict=True)
            now = self._write(found.places, found.keep, contents, append)
        if room.nbytes == self._room_bytes:
            self._room = room
        return self._noted(now, found.digests)


def _packed(wanted: list[Run]) -> Iterator[Run]:
    """Yield where the same bytes are when they follow each other."""
    start = 0
    for run in wanted:
        stop = start + run.stop - run.start
        yield Run(start, stop)
        start = stop
