"""Host memory instead of a device: bounded, counted, and able to fail at any step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.regions.state.arrays.chunks import Layout, Run
from holdfast.regions.state.arrays.device import BUFFERS
from holdfast.regions.state.arrays.digests import DigestKey, Digests
from holdfast.regions.state.arrays.host import bytes_of
from support.regional.digest_reference import digests_of

Asked = Callable[[str], None]
"""Called before memory is allocated; may raise MemoryError."""


class StandInDevice:
    """A `holdfast.regions.state.arrays.device.Device` in host memory.

    Parameters
    ----------
    memory_bytes : int, optional
        Memory for copies and digests; unbounded by default.
    buffer_bytes : int
        Size of its buffers.
    """

    def __init__(
        self, *, memory_bytes: int | None = None, buffer_bytes: int = Layout().segment_bytes
    ) -> None:
        self.memory_bytes = memory_bytes
        self.buffer_bytes = buffer_bytes
        self.used_bytes = 0
        self.used_bytes_max = 0
        self.asked: Asked = lambda step: None
        self.the_lane = StandInLane(self)
        self._keys: dict[int, DigestKey] = {}

    def allocate(self, step: str, nbytes: int) -> npt.NDArray[np.uint8]:
        """Memory of the device until nothing refers to it."""
        self.asked(step)
        if self.memory_bytes is not None and self.used_bytes + nbytes > self.memory_bytes:
            raise MemoryError
        memory = np.full(nbytes, 255, np.uint8)
        self.used_bytes += nbytes
        self.used_bytes_max = max(self.used_bytes, self.used_bytes_max)
        weakref.finalize(memory, self._let_go, nbytes)
        return memory

    def copy(self, array: Any, image_bytes: int) -> Any:
        image = self.allocate("copy", image_bytes)
        image[: array.nbytes] = bytes_of(array)
        image[array.nbytes :] = 0
        return image

    def view(self, array: Any) -> Any:
        return bytes_of(array)

    def digests(
        self, array: Any, chunk_bytes: int, *, before: Digests | None = None, room: Any = None
    ) -> Computed:
        found = self.digests_of(bytes_of(array), chunk_bytes)
        if before is not None and room is not None:
            self.allocate("before", before.nbytes)
            changed = (found != before).any(axis=1).nonzero()[0]
            self._copy(array, changed[: room.nbytes // chunk_bytes], chunk_bytes, room)
        return Computed(found)

    def digests_of(self, data: npt.NDArray[np.uint8], chunk_bytes: int) -> Digests:
        self.allocate("digests", 32 * -(-data.nbytes // chunk_bytes))
        if chunk_bytes not in self._keys:
            self._keys[chunk_bytes] = DigestKey.random(chunk_bytes)
        return digests_of(data, chunk_bytes, self._keys[chunk_bytes])

    def room(self, nbytes: int) -> Any:
        return self.allocate("room", nbytes)

    def set_aside(
        self, array: Any, chunks: npt.NDArray[np.uint32], chunk_bytes: int, room: Any
    ) -> None:
        self._copy(array, chunks, chunk_bytes, room)

    def _copy(self, array: Any, chunks: npt.NDArray[Any], chunk_bytes: int, room: Any) -> None:
        self.allocate("numbers", 4 + 4 * chunks.size)
        data, end = bytes_of(array), 0
        for chunk in chunks.tolist():
            part = data[chunk * chunk_bytes : (chunk + 1) * chunk_bytes]
            room[end : end + part.nbytes] = part
            end += part.nbytes

    @contextmanager
    def lane(self) -> Iterator[StandInLane]:
        yield self.the_lane

    def upload(self, content: Any) -> Any:
        return content.copy()

    def _let_go(self, nbytes: int) -> None:
        self.used_bytes -= nbytes


class Computed:
    """Digests that are ready at once."""

    def __init__(self, digests: Digests) -> None:
        self._digests = digests

    def wait(self) -> Digests:
        return self._digests

    def end(self) -> None:
        pass


class StandInLane:
    """Buffers in turn."""

    def __init__(self, device: StandInDevice) -> None:
        self._device = device
        self._buffers: list[npt.NDArray[np.uint8]] = []
        self._turn = 0
        self.fetched: list[Run] = []

    def digests(self, image: Any, chunk_bytes: int) -> Digests:
        return self._device.digests_of(image, chunk_bytes)

    def unchanged(self, image: Any, before: Any, chunk_bytes: int) -> npt.NDArray[np.bool_]:
        self._device.allocate("comparison", image.nbytes // 8)
        return (image.reshape(-1, chunk_bytes) == before.reshape(-1, chunk_bytes)).all(axis=1)  # type: ignore[no-any-return]

    def fetch(self, image: Any, run: Run) -> Copy:
        if not self._buffers:
            self._buffers = [np.empty(self._device.buffer_bytes, np.uint8) for _ in range(BUFFERS)]
        buffer = self._buffers[self._turn % BUFFERS][: run.stop - run.start]
        self._turn += 1
        self.fetched.append(run)
        return Copy(image[run.start : run.stop], buffer)


class Copy:
    """A copy to the host that is made when the reader waits for it."""

    def __init__(self, source: npt.NDArray[Any], buffer: npt.NDArray[Any]) -> None:
        self._source, self._buffer = source, buffer
        buffer[:] = 255  # which must not be taken for the content

    def wait(self) -> npt.NDArray[Any]:
        self._buffer[:] = self._source
        return self._buffer


class StandInModule:
    """NumPy with the marks of CuPy."""

    def __init__(self, device: StandInDevice) -> None:
        self.device = device

    def asnumpy(self, array: Any) -> npt.NDArray[Any]:
        return np.array(array)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)
