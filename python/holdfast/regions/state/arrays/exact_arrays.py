"""Large array states on a device whose changes are found by comparison with a copy.

The operator waits for one copy from device to device. The device compares it with the copy of the
last written snapshot afterwards, so nothing is left to chance. This costs memory of the device: one
copy of the array between snapshots, and a second one while a snapshot is taken.

- If the device has no room for both, the snapshot drops the older copy and is a full one.
- If it has no room for one, the operator waits for the copy to the host.
- If it has no room for the comparison, everything counts as changed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from holdfast._core import Piece
from holdfast.regions.base.saved import Append, Lease
from holdfast.regions.state.arrays.device import ArrayOnDevice, Image, fetched
from holdfast.regions.state.arrays.device_arrays import LOG, NO_ROOM
from holdfast.regions.state.arrays.host import FrozenArray


class ExactDeviceArray(ArrayOnDevice[Image]):
    """A large array on a device that is compared with its last snapshot byte by byte."""

    def freeze(self, lease: Lease) -> FrozenArray:
        """See `holdfast.regions.state.arrays.host.ArrayState`."""
        self._declared.check(self._array)
        image = self._stored_content()
        if image is not None:
            return FrozenArray(self._declared, partial(self._write_image, image, lease))
        LOG.warning(NO_ROOM, self._declared.where, self._declared.nbytes)
        return self._frozen_on_host(*self._nothing_kept(), None)

    def _stored_content(self) -> Image | None:
        """Return a copy of the array on the device; None if there is no room for one."""
        while True:
            try:
                chunks = self._layout.chunks(self._declared.nbytes)
                return self._device.copy(self._array, chunks * self._layout.chunk_bytes)
            except MemoryError:
                if self._written is None:
                    return None
                # Without its copy there is room, but everything counts as changed.
                self._written = None

    def _write_image(self, image: Image, lease: Lease, append: Append) -> list[Piece]:
        places, keep = self._nothing_kept()
        with self._device.lane() as lane:
            if (written := self._written) is not None:
                places = written.places
                with suppress(MemoryError):  # else everything counts as changed
                    keep = lane.unchanged(image, written.content, self._layout.chunk_bytes)
                keep = self._kept(written, keep, written.holders.granted_by(lease))
            contents = fetched(lane, image, self._runs(keep))
            now = self._write(places, keep, contents, append)
        return self._noted(now, image)
