"""Other ways to write an array to a disk: the module's own `save`, PyTorch, and a plain file."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gpu.held import check_restored, ms_since
from holdfast.regions.state.arrays.chunks import Layout

PLAIN_FILE = "plain file"

_PIECE_BYTES = Layout().segment_bytes
_BLOCK_BYTES = 8 * _PIECE_BYTES


class Saver(Protocol):
    """Something that a user would take instead."""

    name: str

    def save_ms(self, array: Any, folder: Path) -> tuple[float, float]:
        """Write an array; returns what its owner waits for, and the time until it is durable."""

    def restore_ms(self, array: Any, folder: Path) -> float | None:
        """Read it into a new array and check it; None where there is nothing to restore."""


def savers(xp: Any) -> Iterator[Saver]:
    """Yield what can be measured here for the arrays of a module."""
    yield PlainFile()
    yield ArraySaver(xp)
    if missing_torch() is None:
        yield TorchSaver(xp)
        yield TorchAsync(xp)


def missing_torch() -> str | None:
    """Say why PyTorch cannot be measured; None where it can."""
    found = importlib.util.find_spec("torch")
    return "PyTorch is not installed: it is left out" if found is None else None


class PlainFile:
    """The limit of the disk: bytes of host memory, written to one file in pieces, and synced."""

    name = PLAIN_FILE

    def __init__(self) -> None:
        self._block = np.random.default_rng(2).integers(0, 256, _BLOCK_BYTES, np.uint8)

    def save_ms(self, array: Any, folder: Path) -> tuple[float, float]:
        """See `Saver`."""
        begun = time.perf_counter()
        with (folder / "array").open("wb", buffering=0) as file:
            for start in range(0, array.nbytes, _PIECE_BYTES):
                at = start % _BLOCK_BYTES
                stop = at + min(_PIECE_BYTES, array.nbytes - start)
                file.write(self._block[at:stop].data)
            os.fsync(file.fileno())
        took_ms = ms_since(begun)
        return took_ms, took_ms

    def restore_ms(self, array: Any, folder: Path) -> float | None:
        """See `Saver`."""
        return None


class ArraySaver:
    """`numpy.save`, or `cupy.save`, and a sync."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self.name = f"{xp.__name__}.save"

    def save_ms(self, array: Any, folder: Path) -> tuple[float, float]:
        """See `Saver`."""
        begun = time.perf_counter()
        with (folder / "array.npy").open("wb") as file:
            self._xp.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        took_ms = ms_since(begun)
        return took_ms, took_ms

    def restore_ms(self, array: Any, folder: Path) -> float | None:
        """See `Saver`."""
        begun = time.perf_counter()
        restored = self._xp.load(folder / "array.npy")
        _synchronize(self._xp)
        took_ms = ms_since(begun)
        check_restored(self.name, restored, array)
        return took_ms


class TorchSaver:
    """`torch.save` and a sync."""

    name = "torch.save"

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def save_ms(self, array: Any, folder: Path) -> tuple[float, float]:
        """See `Saver`."""
        import torch

        begun = time.perf_counter()
        with (folder / "array.pt").open("wb") as file:
            torch.save(torch.from_dlpack(array), file)
            file.flush()
            os.fsync(file.fileno())
        took_ms = ms_since(begun)
        return took_ms, took_ms

    def restore_ms(self, array: Any, folder: Path) -> float | None:
        """See `Saver`."""
        import torch

        begun = time.perf_counter()
        restored = torch.load(folder / "array.pt", weights_only=True)
        _synchronize(self._xp)
        took_ms = ms_since(begun)
        check_restored(self.name, self._xp.from_dlpack(restored), array)
        return took_ms


class TorchAsync:
    """`torch.distributed.checkpoint.async_save` in a group of one process.

    Arrays on a device are staged in page-locked memory that is kept from one save to the next, as
    PyTorch's documents recommend.
    """

    name = "torch async"

    def __init__(self, xp: Any) -> None:
        import torch.distributed as dist
        from torch.distributed.checkpoint import FileSystemWriter

        self._xp = xp
        if not dist.is_initialized():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
        # PyTorch has page-locked memory only where it has a device.
        self._writer: Any = FileSystemWriter("unset", cache_staged_state_dict=xp is not np)

    def save_ms(self, array: Any, folder: Path) -> tuple[float, float]:
        """See `Saver`."""
        import torch
        from torch.distributed import checkpoint

        state = {"state": torch.from_dlpack(array)}
        begun = time.perf_counter()
        saved: Any = checkpoint.async_save(
            state, storage_writer=self._writer, checkpoint_id=str(folder)
        )
        stall_ms = ms_since(begun)
        saved.result()
        return stall_ms, ms_since(begun)

    def restore_ms(self, array: Any, folder: Path) -> float | None:
        """See `Saver`."""
        import torch
        from torch.distributed import checkpoint

        begun = time.perf_counter()
        restored = self._xp.empty_like(array)
        checkpoint.load({"state": torch.from_dlpack(restored)}, checkpoint_id=str(folder))
        _synchronize(self._xp)
        took_ms = ms_since(begun)
        check_restored(self.name, restored, array)
        return took_ms


def measured(saver: Saver, array: Any, folder: Path) -> tuple[float, float, float | None]:
    """Save and restore in a new folder that does not stay; stall, durable and restore, in ms."""
    folder.mkdir()
    try:
        stall_ms, durable_ms = saver.save_ms(array, folder)
        return stall_ms, durable_ms, saver.restore_ms(array, folder)
    finally:
        shutil.rmtree(folder)


def _synchronize(xp: Any) -> None:
    if xp is not np:
        xp.cuda.Device().synchronize()
