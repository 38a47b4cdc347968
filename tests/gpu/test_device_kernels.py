"""The kernels of `chunks.cu` against their definition in NumPy.

They run on a device where there is one, and everywhere as threads of this process: a compiler for
the host takes the same source.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from holdfast.regions.state.arrays import digests
from holdfast.regions.state.arrays.chunks import MIB
from holdfast.regions.state.arrays.digests import (
    PART_BYTES,
    PASSES,
    DigestKey,
    Digests,
    parts_of,
)
from support import program
from support.regional import array_modules
from support.regional.digest_reference import digests_of

SOURCE = Path(str(resources.files(digests.__package__))) / "chunks.cu"

Bytes = npt.NDArray[np.uint8]

NO_CHUNK = 0xFFFFFFFF


class Runner(Protocol):
    """Where the kernels run."""

    def digests(self, data: Bytes, chunk_bytes: int, key: DigestKey) -> Digests: ...

    def copied(self, data: Bytes, chunks: npt.NDArray[np.uint32], chunk_bytes: int) -> Bytes: ...

    def changed(self, found: Digests, before: Digests, room_chunks: int) -> list[int]: ...


class OnHost:
    """As threads, see ``kernels_on_host.cpp``."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def digests(self, data: Bytes, chunk_bytes: int, key: DigestKey) -> Digests:
        chunks, parts = -(-data.nbytes // chunk_bytes), parts_of(chunk_bytes)
        rows, found = aligned(key.rows), np.zeros((chunks, PASSES), np.uint64)
        self._library.run_digest_chunks(
            ctypes.c_uint(chunks * parts),
            *arguments(data, chunk_bytes, parts),
            *(pointer(array) for array in (rows, key.parts, found)),
        )
        return found

    def copied(self, data: Bytes, chunks: npt.NDArray[np.uint32], chunk_bytes: int) -> Bytes:
        parts = parts_of(chunk_bytes)
        room = aligned(np.full(len(chunks) * chunk_bytes, 255, np.uint8))
        self._library.run_copy_chunks(
            ctypes.c_uint(len(chunks) * parts),
            *arguments(data, chunk_bytes, parts),
            pointer(numbered(chunks)),
            pointer(room),
        )
        return room

    def changed(self, found: Digests, before: Digests, room_chunks: int) -> list[int]:
        numbers = np.full(room_chunks + 2, NO_CHUNK, np.uint32)
        sizes = ctypes.c_uint(len(found)), ctypes.c_uint(room_chunks)
        self._library.run_number_changed(pointer(found), pointer(before), *sizes, pointer(numbers))
        assert numbers[-1] == NO_CHUNK
        return numbers[1 : 1 + numbers[0]].tolist()


class OnDevice:
    """With CuPy."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def digests(self, data: Bytes, chunk_bytes: int, key: DigestKey) -> Digests:
        return self._kernels(key).digests(self._moved(data), chunk_bytes)  # type: ignore[no-any-return]

    def copied(self, data: Bytes, chunks: npt.NDArray[np.uint32], chunk_bytes: int) -> Bytes:
        room = self._cupy.full(len(chunks) * chunk_bytes, 255, np.uint8)
        kernels = self._kernels(DigestKey.random(chunk_bytes))
        numbers = self._cupy.asarray(numbered(chunks))
        kernels.copy_chunks(self._moved(data), numbers, chunk_bytes, room)
        return room.get()  # type: ignore[no-any-return]

    def changed(self, found: Digests, before: Digests, room_chunks: int) -> list[int]:
        on_device = self._cupy.asarray(found), self._cupy.asarray(before)
        numbers = self._kernels(DigestKey.random(8)).queue_numbers(*on_device, room_chunks).get()
        return numbers[1 : 1 + numbers[0]].tolist()  # type: ignore[no-any-return]

    def _kernels(self, key: DigestKey) -> Any:
        from holdfast.regions.state.arrays.gpu import Kernels

        return Kernels(self._cupy.cuda.Device(), key=lambda chunk_bytes: key)

    def _moved(self, data: Bytes) -> Any:
        # On the device it lies as it does here.
        shift = data.ctypes.data % 16
        before = self._cupy.zeros(shift, np.uint8)
        return self._cupy.concatenate([before, self._cupy.asarray(data)])[shift:]


def numbered(chunks: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Numbers of chunks as the kernels pass them on: how many, then which, then anything."""
    return np.concatenate([[chunks.size], chunks, [NO_CHUNK]]).astype(np.uint32)


def pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def arguments(data: Bytes, chunk_bytes: int, parts: int) -> tuple[Any, ...]:
    sizes = ctypes.c_ulonglong(data.nbytes), ctypes.c_ulonglong(chunk_bytes)
    return (pointer(data), *sizes, ctypes.c_uint(parts))


def aligned(array: npt.NDArray[Any], shift: int = 0) -> npt.NDArray[Any]:
    """A copy that begins `shift` bytes behind a multiple of 16."""
    memory = np.empty(array.nbytes + 32, np.uint8)
    start = -memory.ctypes.data % 16 + shift
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[...] = array
    return copy


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels as a library for the host."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Werror"]
    kind = ["-shared", "-fPIC", "-pthread", f"-I{SOURCE.parent}"]
    source = program("regional/kernels_on_host.cpp")
    subprocess.run([compiler, *flags, *kind, "-o", str(library), source], check=True)
    return library


@pytest.fixture(params=["host", "device"])
def runner(request: pytest.FixtureRequest) -> Runner:
    if request.param == "host":
        return OnHost(request.getfixturevalue("library"))
    reason = array_modules.missing("cupy")
    if reason is not None:
        pytest.skip(reason)
    return OnDevice()


def random_bytes(size: int) -> Bytes:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("shift", [0, 1, 8])
@pytest.mark.parametrize(
    ("size", "chunk_bytes"),
    [
        (1, 8),
        (200, 64),
        (PART_BYTES, PART_BYTES),
        (PART_BYTES + 1, PART_BYTES),
        (2 * MIB, MIB),
        (2 * MIB + 16 * 3 + 5, MIB),
        (3 * (PART_BYTES + 24) - 1, PART_BYTES + 24),
    ],
)
def test_digests_are_those_of_the_definition(
    runner: Runner, size: int, chunk_bytes: int, shift: int
) -> None:
    data, key = aligned(random_bytes(size), shift), DigestKey.random(chunk_bytes)
    found = runner.digests(data, chunk_bytes, key)
    assert np.array_equal(found, digests_of(data, chunk_bytes, key))


@pytest.mark.parametrize("content", [0, 255])
def test_digests_of_plain_contents_are_those_of_the_definition(
    runner: Runner, content: int
) -> None:
    data, key = aligned(np.full(PART_BYTES + 100, content, np.uint8)), DigestKey.random(MIB)
    assert np.array_equal(runner.digests(data, MIB, key), digests_of(data, MIB, key))


def test_digests_are_the_same_every_time(runner: Runner) -> None:
    data, key = aligned(random_bytes(3 * MIB)), DigestKey.random(MIB)
    found = [runner.digests(data, MIB, key) for _ in range(5)]
    assert all(np.array_equal(one, found[0]) for one in found)


@pytest.mark.parametrize("shift", [0, 5, 8])
@pytest.mark.parametrize(
    ("size", "chunk_bytes", "chunks"),
    [
        (200, 64, [0, 2]),
        (200, 64, [3]),
        (4 * MIB, MIB, [1, 3]),
        (2 * MIB + 5, MIB, [0, 2]),
        (3 * (PART_BYTES + 24), PART_BYTES + 24, [1, 2]),
    ],
)
def test_chunks_are_copied_one_behind_the_other(
    runner: Runner, size: int, chunk_bytes: int, chunks: list[int], shift: int
) -> None:
    data = aligned(random_bytes(size), shift)
    wanted = np.concatenate([data[n * chunk_bytes : (n + 1) * chunk_bytes] for n in chunks])
    room = runner.copied(data, np.array(chunks, np.uint32), chunk_bytes)
    assert np.array_equal(room[: wanted.size], wanted)
    assert (room[wanted.size :] == 255).all()


@pytest.mark.parametrize(
    ("chunks", "changed", "room"),
    [
        (1, [], 1),
        (1, [0], 1),
        (40, [0, 1, 38, 39], 4),
        (40, [0, 1, 38, 39], 3),
        (40, [5], 0),
        (4096, list(range(3, 4096, 20)), 409),
        (4096, list(range(4096)), 409),
        (5000, [0, 255, 256, 4999], 500),
    ],
)
def test_chunks_whose_digests_differ_are_numbered_as_long_as_there_is_room(
    runner: Runner, chunks: int, changed: list[int], room: int
) -> None:
    random = np.random.default_rng(1)
    found = random.integers(0, 1 << 63, (chunks, PASSES), np.uint64)
    before = found.copy()
    for number, chunk in enumerate(changed):
        before[chunk, number % PASSES] ^= np.uint64(1) << np.uint64(number % 64)
    assert runner.changed(found, before, room) == changed[:room]


def test_nvidias_compiler_takes_the_kernels() -> None:
    # A folder of its own for CUDA 12, one for all of CUDA 13.
    packages = importlib.util.find_spec("nvidia")
    places = (
        [] if packages is None else [Path(p) for p in packages.submodule_search_locations or ()]
    )
    library = next((file for p in places for file in p.glob("*/lib/libnvrtc.so*")), None)
    if library is None:
        pytest.skip("NVRTC is not installed (the package nvidia-cuda-nvrtc)")
    nvrtc = ctypes.CDLL(str(library))
    compiled = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram, compiled, SOURCE.read_bytes(), b"chunks.cu", 0, None)
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_90")
    code = nvrtc.nvrtcCompileProgram(compiled, 1, options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(compiled, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(compiled, log)
    assert code == 0, log.value.decode()
    assert log.value.strip() == b"", "there are no warnings"


def check(create: Callable[..., int], compiled: ctypes.c_void_p, *arguments: Any) -> None:
    assert create(ctypes.byref(compiled), *arguments, None) == 0
