"""Operators that work on streams of their own: what a snapshot waits for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.regions.state.arrays.chunks import MIB, Layout
from support.regional.array_checkpoints import ArrayCheckpoints

ITEMS = 4 * MIB


@pytest.fixture(params=["digests", "exact"])
def world(request: pytest.FixtureRequest, tmp_path: Path, device_xp: Any) -> Any:
    exact = request.param == "exact"
    with ArrayCheckpoints(
        tmp_path, shape=(ITEMS,), dtype="f8", layout=Layout(), xp=device_xp, exact=exact
    ) as world:
        yield world


def stream_of(xp: Any) -> AbstractContextManager[Any]:
    """A stream that the default one does not wait for; the stand-in has none."""
    return xp.cuda.Stream(non_blocking=True) if hasattr(xp, "cuda") else nullcontext()


def queue_work(world: ArrayCheckpoints, part: slice, times: int) -> None:
    for _ in range(times):
        world.array[part] += 1


def stored(world: ArrayCheckpoints) -> np.ndarray:
    return world.stored(world.retained[-1])


def test_a_snapshot_waits_for_the_stream_that_is_the_current_one(
    device_xp: Any, world: ArrayCheckpoints
) -> None:
    wanted = np.zeros(ITEMS)
    with stream_of(device_xp):
        # All chunks change, then few, then more than there is room for, then few again.
        for part in (slice(None), slice(0, 5), slice(None), slice(7, 9), slice(2, 3)):
            queue_work(world, part, 50)
            wanted[part] += 50
            world.attempt()
            assert np.array_equal(stored(world), wanted)


def test_work_on_another_stream_counts_once_the_operator_has_waited_for_it(
    device_xp: Any, world: ArrayCheckpoints
) -> None:
    for times in (1, 2):
        with stream_of(device_xp) as stream:
            queue_work(world, slice(None), 50)
            if stream is not None:
                stream.synchronize()
        world.attempt()
        assert np.array_equal(stored(world), np.full(ITEMS, 50.0 * times))
        assert np.array_equal(world.host(), stored(world))  # waits for the default stream


def test_a_region_restores_on_the_stream_that_is_the_current_one(
    device_xp: Any, world: ArrayCheckpoints
) -> None:
    with stream_of(device_xp):
        queue_work(world, slice(None), 50)
        world.attempt()
        for number in range(3):
            world.restart()
            queue_work(world, slice(0, 3), 1)
            world.attempt()
            assert np.array_equal(stored(world)[:4], [51.0 + number] * 3 + [50.0])
