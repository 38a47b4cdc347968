"""CuPy arrays as array states: copies on streams of their own, page-locked buffers.

A state includes the work that the operator queued on CuPy's current stream when it returns. The
operator has to wait for its work on other streams.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import cupy
import cupyx
import numpy as np

from holdfast.regions.state.arrays.chunks import MIB, Flags, Layout, Run
from holdfast.regions.state.arrays.device import BUFFERS, Image
from holdfast.regions.state.arrays.digests import (
    PASSES,
    THREADS,
    DigestKey,
    Digests,
    parts_of,
)
from holdfast.regions.state.arrays.host import Bytes, bytes_of

if TYPE_CHECKING:
    import numpy.typing as npt

# Page-locked host memory of one process and device: 2 lanes x 4 buffers x 8 MiB = 64 MiB. Every
# region that writes or restores a snapshot uses one lane; others wait. One lane takes the whole
# bandwidth of the bus.
LANES: Final = 2
BUFFER_BYTES: Final = Layout().segment_bytes

# Bytes compared at a time: the flags in between take an eighth of this on the device.
COMPARE_BYTES: Final = 256 * MIB


_DEVICES: Final[dict[int, CupyDevice]] = {}
_DEVICES_LOCK: Final = threading.Lock()


def cupy_device() -> CupyDevice:
    """Return the current CUDA device; one object per device and process."""
    number = cupy.cuda.Device().id
    with _DEVICES_LOCK:
        if number not in _DEVICES:
            _DEVICES[number] = CupyDevice(number)
        return _DEVICES[number]


class CupyDevice:
    """A CUDA device, see `holdfast.regions.state.arrays.device.Device`."""

    def __init__(self, number: int) -> None:
        self._device = cupy.cuda.Device(number)
        with self._device:
            # Copies of states wait for no copy to the host: that has other streams.
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._kernels = Kernels(self._device)
        # Buffers are made when they are first needed.
        self._lanes: queue.LifoQueue[CupyLane | None] = queue.LifoQueue()
        for _ in range(LANES):
            self._lanes.put(None)

    @property
    def buffer_bytes(self) -> int:
        """See `Device`."""
        return BUFFER_BYTES

    def copy(self, array: Any, image_bytes: int) -> Image:
        """See `Device`."""
        with self._device:
            source = cupy.ascontiguousarray(array)
            changed = _recorded(cupy.cuda.get_current_stream())
            with self._stream as stream:
                stream.wait_event(changed)
                image = cupy.empty(image_bytes, cupy.uint8)
                image.data.copy_from_device_async(source.data, source.nbytes, stream)
                if image_bytes > source.nbytes:
                    image[source.nbytes :] = 0
                _wait_for(changed, stream)
        return image

    def view(self, array: Any) -> Image:
        """See `Device`."""
        with self._device:
            image = cupy.ascontiguousarray(array).reshape(-1).view(cupy.uint8)
            cupy.cuda.get_current_stream().synchronize()
        return image

    def digests(
        self,
        array: Any,
        chunk_bytes: int,
        *,
        before: Digests | None = None,
        room: Image | None = None,
    ) -> CupyDigests:
        """See `Device`."""
        with self._device:
            source = cupy.ascontiguousarray(array)
            changed = _recorded(cupy.cuda.get_current_stream())
            with self._stream as stream:
                stream.wait_event(changed)
                found = self._kernels.queue_digests(source, chunk_bytes)
                pending = CupyDigests(source, found, changed, stream)
                try:
                    if before is not None and room is not None:
                        there, room_chunks = pending.sent(before), room.nbytes // chunk_bytes
                        numbers = self._kernels.queue_numbers(found, there, room_chunks)
                        self._kernels.copy_chunks(source, numbers, chunk_bytes, room)
                except MemoryError:
                    pending.end()
                    raise
        return pending

    def room(self, nbytes: int) -> Image:
        """See `Device`."""
        # Freed memory may still be in use on its stream, so allocate on the stream that uses it.
        with self._device, self._stream:
            return cupy.empty(nbytes, cupy.uint8)

    def set_aside(
        self, array: Any, chunks: npt.NDArray[np.uint32], chunk_bytes: int, room: Image
    ) -> None:
        """See `Device`."""
        with self._device:
            source = cupy.ascontiguousarray(array)
            changed = _recorded(cupy.cuda.get_current_stream())
            with self._stream as stream:
                stream.wait_event(changed)
                numbers = cupy.asarray(np.append(np.uint32(chunks.size), chunks))
                self._kernels.copy_chunks(source, numbers, chunk_bytes, room)
                _wait_for(changed, stream)

    @contextmanager
    def lane(self) -> Iterator[CupyLane]:
        """See `Device`."""
        lane = self._lanes.get()
        try:
            if lane is None:
                lane = CupyLane(self._device, self._kernels)
            try:
                yield lane
            finally:
                lane.drain()
        finally:
            self._lanes.put(lane)

    def upload(self, content: npt.NDArray[Any]) -> Any:
        """See `Device`."""
        with self._device, self.lane() as lane:
            array = cupy.empty(content.shape, content.dtype)
            # Work that was queued before the memory was freed may still use it.
            lane.send(bytes_of(content), array, after=_recorded(cupy.cuda.get_current_stream()))
        return array


class CupyLane:
    """Streams with page-locked buffers, see `holdfast.regions.state.arrays.device.Lane`."""

    def __init__(self, device: Any, kernels: Kernels) -> None:
        self._device = device
        self._kernels = kernels
        with device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            # Copies take turns, so that the bus does not wait for the end of one to begin the next.
            self._fetches = [self._stream, cupy.cuda.Stream(non_blocking=True)]
            self._buffers = [cupyx.empty_pinned(BUFFER_BYTES, np.uint8) for _ in range(BUFFERS)]
        self._turns = itertools.count()

    def digests(self, image: Image, chunk_bytes: int) -> Digests:
        """See `Lane`."""
        with self._device, self._stream:
            return self._kernels.digests(image, chunk_bytes)

    def unchanged(self, image: Image, before: Image, chunk_bytes: int) -> Flags:
        """See `Lane`."""
        step = max(COMPARE_BYTES // chunk_bytes, 1)
        with self._device, self._stream:
            chunks = image.view(cupy.uint64).reshape(-1, chunk_bytes // 8)
            others = before.view(cupy.uint64).reshape(chunks.shape)
            parts = [
                (chunks[first : first + step] == others[first : first + step]).all(axis=1)
                for first in range(0, len(chunks), step)
            ]
            flags: Flags = cupy.concatenate(parts).get()
        return flags

    def fetch(self, image: Image, run: Run) -> CupyFetch:
        """See `Lane`."""
        size = run.stop - run.start
        turn = next(self._turns)
        buffer, stream = self._buffers[turn % BUFFERS][:size], self._fetches[turn % 2]
        with self._device:
            (image.data + run.start).copy_to_host_async(buffer.ctypes.data, size, stream)
            return CupyFetch(_recorded(stream), buffer)

    def send(self, content: Bytes, array: Any, *, after: Any) -> None:
        """Copy bytes to an array on the device; `after` is an event to wait for."""
        self._stream.wait_event(after)
        free: list[Any] = [None] * BUFFERS
        for number, start in enumerate(range(0, content.nbytes, BUFFER_BYTES)):
            part = content[start : start + BUFFER_BYTES]
            if (sent := free[number % BUFFERS]) is not None:
                sent.synchronize()
            buffer = self._buffers[number % BUFFERS][: part.nbytes]
            buffer[:] = part
            target = array.data + start
            target.copy_from_host_async(buffer.ctypes.data, part.nbytes, self._stream)
            free[number % BUFFERS] = _recorded(self._stream)

    def drain(self) -> None:
        """Wait until nothing uses the buffers."""
        for stream in self._fetches:
            stream.synchronize()


class Kernels:
    """Kernels of `chunks.cu` on a device; `key` returns the digest key by chunk size in bytes."""

    def __init__(self, device: Any, key: Callable[[int], DigestKey] = DigestKey.random) -> None:
        self._new_key = key
        self._keys: dict[int, tuple[Any, Any]] = {}
        self._keys_lock = threading.Lock()
        source = resources.files(__package__).joinpath("chunks.cu").read_text()
        with device:
            module = cupy.RawModule(code=source)
            self._digest_chunks = module.get_function("digest_chunks")
            self._number_changed = module.get_function("number_changed")
            self._copy_chunks = module.get_function("copy_chunks")

    def digests(self, array: Any, chunk_bytes: int) -> Digests:
        """Compute and await digests of an array's chunks in C order, on the current stream."""
        digests: Digests = self.queue_digests(array, chunk_bytes).get()
        return digests

    def queue_digests(self, array: Any, chunk_bytes: int) -> Any:
        """Queue this computation; returns the array of digests on the device."""
        row_key, part_key = self._key(chunk_bytes)
        chunks, parts = -(-array.nbytes // chunk_bytes), parts_of(chunk_bytes)
        found = cupy.zeros((chunks, PASSES), cupy.uint64)
        sizes = np.uint64(array.nbytes), np.uint64(chunk_bytes), np.uint32(parts)
        self._digest_chunks(
            (chunks * parts,), (THREADS,), (array, *sizes, row_key, part_key, found)
        )
        return found

    def queue_numbers(self, digests: Any, before: Any, room_chunks: int) -> Any:
        """Queue a search for chunks whose digests differ, on the current stream.

        Returns their count, up to `room_chunks`, and then their numbers, on the device.
        """
        numbers = cupy.empty(1 + room_chunks, cupy.uint32)
        sizes = np.uint32(len(digests)), np.uint32(room_chunks)
        self._number_changed((1,), (THREADS,), (digests, before, *sizes, numbers))
        return numbers

    def copy_chunks(self, array: Any, numbers: Any, chunk_bytes: int, room: Image) -> None:
        """Queue a copy of chunks on the current stream, see `Device.set_aside`.

        `numbers` begins with their count, at most one less than it has items.
        """
        parts = parts_of(chunk_bytes)
        sizes = np.uint64(array.nbytes), np.uint64(chunk_bytes), np.uint32(parts)
        blocks = (numbers.size - 1) * parts
        self._copy_chunks((blocks,), (THREADS,), (array, *sizes, numbers, room))

    def _key(self, chunk_bytes: int) -> tuple[Any, Any]:
        with self._keys_lock:
            if chunk_bytes not in self._keys:
                key = self._new_key(chunk_bytes)
                on_device = cupy.asarray(key.rows), cupy.asarray(key.parts)
                # Other streams read them, too.
                cupy.cuda.get_current_stream().synchronize()
                self._keys[chunk_bytes] = on_device
            return self._keys[chunk_bytes]


class CupyDigests:
    """See `holdfast.regions.state.arrays.device.PendingDigests`.

    `stream` computes them after the event `changed`. `source` is the array, or a copy in C order.
    """

    def __init__(self, source: Any, found: Any, changed: Any, stream: Any) -> None:
        self._changed = changed
        self._stream = stream
        self._digests = cupyx.empty_pinned(found.shape, found.dtype)
        found.data.copy_to_host_async(self._digests.ctypes.data, found.nbytes, stream)
        self._found = _recorded(stream, block=False)
        # Another stream's memory, and page-locked memory, must not be reused while the device works
        # on it.
        self._used: list[Any] = [source]

    def sent(self, digests: Digests) -> Any:
        """Queue a copy of digests to the device."""
        locked = cupyx.empty_like_pinned(digests)
        locked[...] = digests
        self._used.append(locked)
        there = cupy.empty(digests.shape, digests.dtype)
        there.data.copy_from_host_async(locked.ctypes.data, digests.nbytes, self._stream)
        return there

    def wait(self) -> Digests:
        """See `PendingDigests`."""
        self._changed.synchronize()
        self._found.synchronize()
        return np.array(self._digests)  # page-locked memory is scarce

    def end(self) -> None:
        """See `PendingDigests`."""
        _wait_for(self._changed, self._stream)


class CupyFetch:
    """See `holdfast.regions.state.arrays.device.Fetch`."""

    def __init__(self, done: Any, buffer: Bytes) -> None:
        self._done = done
        self._buffer = buffer

    def wait(self) -> Bytes:
        """See `Fetch`."""
        self._done.synchronize()
        return self._buffer


def _recorded(stream: Any, *, block: bool = True) -> Any:
    # A waiting thread sleeps, because the cores have rows to process.
    event = cupy.cuda.Event(block=block, disable_timing=True)
    stream.record(event)
    return event


def _wait_for(changed: Any, stream: Any) -> None:
    # An operator waits for its own work, and then for a millisecond or two. Waking up would add a
    # tenth, so this does not sleep.
    done = _recorded(stream, block=False)
    changed.synchronize()
    done.synchronize()
