"""CuPy arrays as array states: copies on streams of their own, page-locked buffers.

Work that an operator put on the stream that is CuPy's current one when it returns is part of its
state; work on other streams it has to wait for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import cupy
import cupyx
import numpy as np

from holdfast.regions.state.arrays import Bytes, bytes_of
from holdfast.regions.state.chunks import MIB, Flags, Layout, Run
from holdfast.regions.state.device import Image
from holdfast.regions.state.device_digests import PASSES, THREADS, DigestKey, Digests, parts_of

if TYPE_CHECKING:
    import numpy.typing as npt

# Page-locked host memory of one process and device: 4 lanes x 2 buffers x 8 MiB = 64 MiB. Every
# region that writes a snapshot, or restores one, uses one lane; others wait.
LANES: Final = 4
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
    """A CUDA device, see `holdfast.regions.state.device_arrays.Device`.

    Parameters
    ----------
    number : int
        Its index.
    """

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
                image[source.nbytes :] = 0
                image.data.copy_from_device_async(source.data, source.nbytes, stream)
                _recorded(stream).synchronize()
        return image

    def view(self, array: Any) -> Image:
        """See `Device`."""
        with self._device:
            image = cupy.ascontiguousarray(array).reshape(-1).view(cupy.uint8)
            cupy.cuda.get_current_stream().synchronize()
        return image

    def digests(self, array: Any, chunk_bytes: int) -> Digests:
        """See `Device`."""
        with self._device:
            source = cupy.ascontiguousarray(array)
            changed = _recorded(cupy.cuda.get_current_stream())
            with self._stream as stream:
                stream.wait_event(changed)
                return self._kernels.digests(source, chunk_bytes)

    def room(self, nbytes: int) -> Image:
        """See `Device`."""
        # Memory that was let go of on a stream may be in use there, so it is asked for where it is
        # used.
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
                self._kernels.copy_chunks(source, chunks, chunk_bytes, room)
                _recorded(stream).synchronize()

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
            # The memory may be in use by what was queued before it was let go of.
            lane.send(bytes_of(content), array, after=_recorded(cupy.cuda.get_current_stream()))
        return array


class CupyLane:
    """A stream with two page-locked buffers, see `holdfast.regions.state.device_arrays.Lane`."""

    def __init__(self, device: Any, kernels: Kernels) -> None:
        self._device = device
        self._kernels = kernels
        with device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._buffers = [cupyx.empty_pinned(BUFFER_BYTES, np.uint8) for _ in range(2)]

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
        buffer = self._next_buffer()[:size]
        with self._device:
            (image.data + run.start).copy_to_host_async(buffer.ctypes.data, size, self._stream)
            return CupyFetch(_recorded(self._stream), buffer)

    def send(self, content: Bytes, array: Any, *, after: Any) -> None:
        """Copy bytes to an array on the device; `after` is an event to wait for."""
        self._stream.wait_event(after)
        free: list[Any] = [None, None]
        for number, start in enumerate(range(0, content.nbytes, BUFFER_BYTES)):
            part = content[start : start + BUFFER_BYTES]
            if (sent := free[number % 2]) is not None:
                sent.synchronize()
            buffer = self._next_buffer()[: part.nbytes]
            buffer[:] = part
            target = array.data + start
            target.copy_from_host_async(buffer.ctypes.data, part.nbytes, self._stream)
            free[number % 2] = _recorded(self._stream)

    def drain(self) -> None:
        """Wait until nothing uses the buffers."""
        self._stream.synchronize()

    def _next_buffer(self) -> Bytes:
        self._buffers.reverse()
        buffer: Bytes = self._buffers[0]
        return buffer


class Kernels:
    """The kernels of `device_chunks.cu` on one device, and the key of this process's digests.

    Parameters
    ----------
    device : cupy.cuda.Device
        The device.
    key : callable, optional
        Returns the key for a size of chunks, in bytes; a random one by default.
    """

    def __init__(self, device: Any, key: Callable[[int], DigestKey] = DigestKey.random) -> None:
        self._new_key = key
        self._keys: dict[int, tuple[Any, Any]] = {}
        self._keys_lock = threading.Lock()
        source = resources.files(__package__).joinpath("device_chunks.cu").read_text()
        with device:
            module = cupy.RawModule(code=source)
            self._digest_chunks = module.get_function("digest_chunks")
            self._copy_chunks = module.get_function("copy_chunks")

    def digests(self, array: Any, chunk_bytes: int) -> Digests:
        """Compute the digests of an array's chunks, on the current stream; complete on return.

        Parameters
        ----------
        array : cupy.ndarray
            In C order.
        chunk_bytes : int
            Size of a chunk.
        """
        found = self.queue_digests(array, chunk_bytes)
        _recorded(cupy.cuda.get_current_stream()).synchronize()
        digests: Digests = found.get()
        return digests

    def queue_digests(self, array: Any, chunk_bytes: int) -> Any:
        """Queue the same; returns the array of digests on the device."""
        row_key, part_key = self._key(chunk_bytes)
        chunks, parts = -(-array.nbytes // chunk_bytes), parts_of(chunk_bytes)
        found = cupy.zeros((chunks, PASSES), cupy.uint64)
        sizes = np.uint64(array.nbytes), np.uint64(chunk_bytes), np.uint32(parts)
        self._digest_chunks(
            (chunks * parts,), (THREADS,), (array, *sizes, row_key, part_key, found)
        )
        return found

    def copy_chunks(
        self, array: Any, chunks: npt.NDArray[np.uint32], chunk_bytes: int, room: Image
    ) -> None:
        """Queue a copy of some chunks on the current stream, see `Device.set_aside`."""
        parts = parts_of(chunk_bytes)
        sizes = np.uint64(array.nbytes), np.uint64(chunk_bytes), np.uint32(parts)
        self._copy_chunks(
            (len(chunks) * parts,), (THREADS,), (array, *sizes, cupy.asarray(chunks), room)
        )

    def _key(self, chunk_bytes: int) -> tuple[Any, Any]:
        with self._keys_lock:
            if chunk_bytes not in self._keys:
                key = self._new_key(chunk_bytes)
                on_device = cupy.asarray(key.rows), cupy.asarray(key.parts)
                # Other streams read them, too.
                cupy.cuda.get_current_stream().synchronize()
                self._keys[chunk_bytes] = on_device
            return self._keys[chunk_bytes]


class CupyFetch:
    """See `holdfast.regions.state.device_arrays.Fetch`."""

    def __init__(self, done: Any, buffer: Bytes) -> None:
        self._done = done
        self._buffer = buffer

    def wait(self) -> Bytes:
        """See `Fetch`."""
        self._done.synchronize()
        return self._buffer


def _recorded(stream: Any) -> Any:
    # Who waits for it sleeps: the cores have rows to process.
    event = cupy.cuda.Event(block=True, disable_timing=True)
    stream.record(event)
    return event
