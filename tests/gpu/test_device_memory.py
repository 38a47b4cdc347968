"""A device that is out of memory at any step: states are whole, and no snapshot fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.regions.state.arrays.chunks import Layout
from support.regional.array_checkpoints import ArrayCheckpoints

CHUNK = 64 * 1024
LAYOUT = Layout(chunk_bytes=CHUNK, segment_bytes=4 * CHUNK)
SIZE = 30 * CHUNK + 77

#: In this order: chunks that change before the next attempt.
CHANGED = [range(31), range(2), range(20), range(3, 5), range(1), range(31)]


class Memory:
    """What a device does when it is asked for memory: the n-th time it has none, or from then on.

    Parameters
    ----------
    xp : module
        Array module.
    nth : int
        Counts from 0.
    for_good : bool
        Whether it has none afterwards, too.
    """

    def __init__(self, xp: Any, nth: int, *, for_good: bool) -> None:
        self._xp = xp
        self._nth = nth
        self._for_good = for_good
        self._asked = 0
        self.refused = 0

    def ask(self, what: object) -> None:
        """Called before memory is given."""
        self._asked += 1
        if self._asked - 1 == self._nth or (self._for_good and self._asked > self._nth):
            self.refused += 1
            raise self._error()

    @contextmanager
    def counts(self) -> Iterator[None]:
        """While this lasts, memory is asked for by Holdfast."""
        if not hasattr(self._xp, "cuda"):
            before, self._xp.device.asked = self._xp.device.asked, self.ask
            try:
                yield
            finally:
                self._xp.device.asked = before
            return
        pool = self._xp.get_default_memory_pool()

        def allocate(size: int) -> Any:
            self.ask(size)
            return pool.malloc(size)

        with self._xp.cuda.using_allocator(allocate):
            yield

    def _error(self) -> MemoryError:
        if hasattr(self._xp, "cuda"):
            return self._xp.cuda.memory.OutOfMemoryError(1, 1)  # type: ignore[no-any-return]
        return MemoryError()


def run(folder: Path, xp: Any, memory: Memory, *, exact: bool) -> None:
    """Attempts, and a restart after the fourth one; every checkpoint has what the array was."""
    disturbed: Callable[[], AbstractContextManager[None]] = memory.counts
    with ArrayCheckpoints(
        folder,
        shape=(SIZE,),
        layout=LAYOUT,
        xp=xp,
        exact=exact,
        max_file_bytes=1 << 20,
        disturbed=disturbed,
    ) as world:
        for number, chunks in enumerate(CHANGED):
            for chunk in chunks:
                world.array[chunk * CHUNK] += 1
            world.attempt()
            assert np.array_equal(world.stored(world.retained[-1]), world.host())
            assert int(world.host().astype(np.int64).sum()) == sum(map(len, CHANGED[: number + 1]))
            if number == 3:
                restart(world)
        if memory.refused == 0:
            world.disturbed = None
            written = world.appended_bytes
            world.attempt()
            assert world.appended_bytes == written


def restart(world: ArrayCheckpoints) -> None:
    """Restart; where there is no memory for the array itself, the region says so and waits."""
    try:
        world.restart()
    except MemoryError:
        world.disturbed = None
        world.restart()


@pytest.mark.parametrize("exact", [False, True], ids=["digests", "exact"])
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_states_are_whole_whenever_there_is_no_memory(
    tmp_path: Path, device_xp: Any, exact: bool, for_good: bool
) -> None:
    for nth in range(200):
        memory = Memory(device_xp, nth, for_good=for_good)
        run(tmp_path / str(nth), device_xp, memory, exact=exact)
        if memory.refused == 0:
            break
    assert memory.refused == 0, "every step was reached"
    assert nth > 8
