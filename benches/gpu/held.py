"""One large array state of Holdfast, and its snapshots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from common.rounds import WrongStateError

from holdfast import SegmentRef, SnapshotManager
from holdfast._core import OperatorEntry
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.arrays.chunks import MIB
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import read_operator, segments_of, write_operator

GIB = 1024 * MIB

#: One chunk in so many changes where few do.
ONE_IN = 20
# Random bytes are repeated at a distance that compression does not see.
_BLOCK_BYTES = 64 * MIB
_OWNERS = RegionOwners("bench", "region")


class HeldArray:
    """An array state, its registry, and a manager for its segments.

    Parameters
    ----------
    xp : module
        NumPy or CuPy.
    state_bytes : int
        Size of the array.
    manager : SnapshotManager
        Takes its segments.
    """

    def __init__(self, xp: Any, state_bytes: int, manager: SnapshotManager) -> None:
        self._xp = xp
        self._manager = manager
        self._attempt = 0
        self._registry = StateRegistry(xp)
        self._entry: OperatorEntry | None = None
        self.array = self._registry.array("state", shape=(state_bytes,), dtype="uint8")
        block = xp.asarray(np.random.default_rng(1).integers(0, 256, _BLOCK_BYTES, np.uint8))
        for number, start in enumerate(range(0, state_bytes, _BLOCK_BYTES)):
            part = self.array[start : start + _BLOCK_BYTES]
            part[:] = block[: part.size] + number

    def change_all(self) -> None:
        """Change every byte."""
        self.array += 1
        self.wait()

    def change_few(self) -> None:
        """Change one chunk in twenty, other ones every time."""
        self.array[self._attempt % ONE_IN * MIB :: ONE_IN * MIB] += 1
        self.wait()

    def wait(self) -> None:
        """Return when the device has done what was queued; at once without a device."""
        if self._xp is not np:
            self._xp.cuda.Device().synchronize()

    def copy_ms(self) -> float:
        """Copy the array to another one that is there: as fast as memory allows."""
        copy = self._xp.empty_like(self.array)
        begun = time.perf_counter()
        if self._xp is np:
            copy[:] = self.array
        else:  # An assignment would copy item by item.
            copy.data.copy_from_device_async(self.array.data, self.array.nbytes)
        self.wait()
        return ms_since(begun)

    def snapshot(self) -> tuple[float, float]:
        """Take and write a snapshot; returns the stall and all of it, in milliseconds."""
        self._attempt += 1
        number = self._attempt
        # Files of the snapshot before are deleted in between, as those of the others are.
        self._manager.wait_for_deletes()
        self._manager.started(number)

        def lease(state: str, refs: Sequence[SegmentRef]) -> list[bool]:
            return self._manager.lease(_OWNERS.state("operator", state), number, refs)

        begun = time.perf_counter()
        frozen = self._registry.freeze(lease)
        stall_ms = ms_since(begun)
        entry = write_operator(self._manager, _OWNERS, number, "operator", frozen)
        for owner, refs in segments_of(_OWNERS, entry):
            self._manager.persist_segments(number, owner, refs)
        total_ms = ms_since(begun)
        self._manager.completed(number, {number: {}})
        self._entry = entry
        return stall_ms, total_ms

    def restore_ms(self) -> float:
        """Read the last snapshot into a new array."""
        assert self._entry is not None
        begun = time.perf_counter()
        registry = StateRegistry(self._xp, read_operator(self._manager, _OWNERS, self._entry))
        restored = registry.array("state", shape=self.array.shape, dtype="uint8")
        self.wait()
        took_ms = ms_since(begun)
        check_restored("Holdfast", restored, self.array)
        return took_ms

    def fetch_gib_s(self) -> float:
        """Take a snapshot and drop what comes to the host."""
        nowhere = SegmentRef.from_bytes(bytes(44))
        self.change_all()
        (frozen,) = self._registry.freeze(lambda state, refs: [False] * len(refs))
        assert not isinstance(frozen, SavedState)
        begun = time.perf_counter()
        frozen.write(lambda data: nowhere)
        return gib_s(self.array.nbytes, begun)


def check_restored(what: str, restored: Any, array: Any) -> None:
    """Refuse an array that is not as it was, with a WrongStateError."""
    step = _BLOCK_BYTES
    for start in range(0, array.size, step):
        if not bool((restored[start : start + step] == array[start : start + step]).all()):
            raise WrongStateError(f"{what} restored another array than it saved")


def ms_since(begun: float) -> float:
    """Milliseconds since a reading of `time.perf_counter`."""
    return (time.perf_counter() - begun) * 1e3


def gib_s(nbytes: int, begun: float) -> float:
    """Bytes since a reading of `time.perf_counter`, in GiB a second."""
    return nbytes / GIB / (time.perf_counter() - begun)
