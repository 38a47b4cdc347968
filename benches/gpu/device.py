"""Figures that only a GPU has: its rates, and the memory that snapshots take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpu.held import GIB, gib_s
from holdfast.regions.state.arrays.chunks import MIB

_PINNED_BYTES = 256 * MIB


def pinned_gib_s(array: Any) -> float:
    """Copy an array to the host as fast as that goes."""
    import cupy
    import cupyx

    buffer = cupyx.empty_pinned(min(_PINNED_BYTES, array.nbytes), np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    begun = time.perf_counter()
    for start in range(0, array.nbytes, buffer.nbytes):
        size = min(buffer.nbytes, array.nbytes - start)
        (array.data + start).copy_to_host_async(buffer.ctypes.data, size, stream)
    stream.synchronize()
    return gib_s(array.nbytes, begun)


def digests_gib_s(array: Any) -> float:
    """Compute the digests of an array's chunks: the kernel alone."""
    import cupy

    from holdfast.regions.state.arrays.gpu import Kernels

    kernels = Kernels(cupy.cuda.Device())
    kernels.queue_digests(array, MIB)  # Warms up.
    begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
    begun.record()
    kernels.queue_digests(array, MIB)
    ended.record()
    ended.synchronize()
    return array.nbytes / GIB / (cupy.cuda.get_elapsed_time(begun, ended) / 1e3)


def memory_gib_s() -> float | None:
    """Return the bandwidth that the device claims to have; None where it does not tell."""
    import cupy

    attributes = cupy.cuda.Device().attributes
    clock_khz, bus_bits = attributes["MemoryClockRate"], attributes["GlobalMemoryBusWidth"]
    return 2 * clock_khz * 1e3 * bus_bits / 8 / GIB or None  # two bits a clock and line


class MemoryMeter:
    """Memory of the device that CuPy gives this thread, in bytes beyond some it began with."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.used_bytes_max = 0

    @contextmanager
    def counts(self) -> Iterator[None]:
        """Follow what is taken and given back while this lasts."""
        import cupy

        meter = self

        class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
            name = "meter"

            def malloc_postprocess(self, **memory: Any) -> None:
                meter.used_bytes += memory["mem_size"] if memory["mem_ptr"] else 0
                meter.used_bytes_max = max(meter.used_bytes, meter.used_bytes_max)

            def free_postprocess(self, **memory: Any) -> None:
                meter.used_bytes -= memory["mem_size"]

        with Hook():
            yield

    def peak_bytes(self) -> int:
        """Return the most there was since this was last asked."""
        peak, self.used_bytes_max = self.used_bytes_max, self.used_bytes
        return peak
