"""Chunks that did not change are referred to, and every checkpoint still has exactly its state."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.regions.state.arrays.chunks import Layout
from support.regional.array_checkpoints import ArrayCheckpoints, Outcome, refs_of

OUTCOMES: list[Outcome] = ["completed", "completed", "fell back", "aborted", "abort not told"]


@dataclass(frozen=True)
class Step:
    """Some writes, how the next attempt ends, whose leases it is refused, and a restart."""

    writes: list[tuple[float, int, int]]
    outcome: Outcome
    refused: frozenset[int]
    restart: bool


STEPS = st.builds(
    Step,
    st.lists(st.tuples(st.floats(0, 0.999), st.integers(1, 90), st.integers(0, 255)), max_size=4),
    st.sampled_from(OUTCOMES),
    st.frozensets(st.integers(0, 5), max_size=5),
    st.sampled_from([False, False, False, True]),
)


# Examples share the array module, which keeps nothing of them.
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    nbytes=st.integers(65, 1200),
    steps=st.lists(STEPS, min_size=1, max_size=20),
    exact=st.booleans(),
)
def test_every_retained_checkpoint_has_its_state_after_any_history(
    xp: Any, nbytes: int, steps: list[Step], exact: bool
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ArrayCheckpoints(Path(folder), shape=(nbytes,), xp=xp, exact=exact) as world,
    ):
        for step in steps:
            for place, length, value in step.writes:
                start = int(place * nbytes)
                world.array[start : start + length] = value
            world.refused = lambda number, refused=step.refused: number % 6 in refused  # type: ignore[misc]
            world.attempt(step.outcome)
            if step.restart:
                world.restart()
            if world.retained:
                assert np.array_equal(world.host(), world.retained[-1].content)
            for checkpoint in world.retained:
                assert np.array_equal(world.stored(checkpoint), checkpoint.content)


@pytest.fixture(params=[False, True], ids=["digests", "exact"])
def exact(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def written_by(world: ArrayCheckpoints) -> int:
    before = world.appended_bytes
    world.attempt()
    return world.appended_bytes - before


def test_only_changed_chunks_are_written(tmp_path: Path, xp: Any, exact: bool) -> None:
    with ArrayCheckpoints(tmp_path, shape=(10 * 64 + 5,), xp=xp, exact=exact) as world:
        assert written_by(world) == 645
        assert written_by(world) == 0
        world.array[64] += 1
        world.array[-1] += 1
        assert written_by(world) == 64 + 5


def test_chunks_are_known_after_a_restart(tmp_path: Path, xp: Any, exact: bool) -> None:
    with ArrayCheckpoints(tmp_path, shape=(640,), xp=xp, exact=exact) as world:
        world.attempt()
        world.array[0] += 1
        world.attempt()
        world.restart()
        assert written_by(world) == 0
        world.array[100] += 1
        assert written_by(world) == 64


@pytest.mark.parametrize("outcome", ["fell back", "aborted", "abort not told"])
def test_after_a_failure_chunks_of_the_last_completed_snapshot_are_kept(
    tmp_path: Path, xp: Any, exact: bool, outcome: Outcome
) -> None:
    with ArrayCheckpoints(tmp_path, shape=(640,), xp=xp, exact=exact) as world:
        world.attempt()
        completed = set(refs_of(world.retained[-1].entry))
        world.array[0] += 1
        failed = set(refs_of(world.attempt(outcome))) - completed
        world.array[0] += 1
        world.array[600] += 1
        assert written_by(world) == 2 * 64
        assert failed
        assert not failed & set(refs_of(world.retained[-1].entry))


def test_what_the_manager_refuses_is_written_again(tmp_path: Path, xp: Any, exact: bool) -> None:
    with ArrayCheckpoints(tmp_path, shape=(640,), xp=xp, exact=exact) as world:
        world.attempt()
        world.refused = lambda number: number == 2  # of 256, 256 and 128 bytes
        assert written_by(world) == 256
        world.refused = lambda number: True
        assert written_by(world) == 640


def test_a_manager_that_never_saw_the_segments_gets_all_of_them(
    tmp_path: Path, xp: Any, exact: bool
) -> None:
    with (
        ArrayCheckpoints(tmp_path / "one", shape=(640,), xp=xp, exact=exact) as world,
        ArrayCheckpoints(tmp_path / "other", shape=(640,), xp=xp, exact=exact) as other,
    ):
        world.attempt()
        world.manager, other.manager = other.manager, world.manager
        assert written_by(world) == 640


@pytest.mark.parametrize("restart", [False, True])
def test_a_segment_of_which_less_than_half_is_needed_is_let_go_of(
    tmp_path: Path, xp: Any, exact: bool, restart: bool
) -> None:
    with ArrayCheckpoints(tmp_path, shape=(256,), xp=xp, exact=exact) as world:
        world.attempt()
        (first,) = refs_of(world.retained[-1].entry)
        world.array[0] += 1
        world.array[64] += 1
        assert written_by(world) == 2 * 64
        assert first in refs_of(world.retained[-1].entry)
        if restart:
            world.restart()
        world.array[128] += 1
        assert written_by(world) == 2 * 64  # the one that changed, and the last one of its segment
        assert first not in refs_of(world.retained[-1].entry)


def test_files_stay_bounded_over_many_checkpoints_with_few_changes(
    tmp_path: Path, xp: Any, exact: bool
) -> None:
    chunk, count = 2048, 100
    layout = Layout(chunk_bytes=chunk, segment_bytes=8 * chunk)
    with ArrayCheckpoints(
        tmp_path,
        shape=(chunk * count,),
        layout=layout,
        max_file_bytes=32 * chunk,
        xp=xp,
        exact=exact,
    ) as world:
        random = np.random.default_rng(4)
        world.restore_content(random.integers(0, 256, chunk * count).astype("uint8"))
        full = written_by(world)
        for _ in range(200):
            world.array[int(random.integers(chunk * count))] ^= 255
            world.attempt()
            # A file may be half dead (the manager's bound), and so may a segment that lives.
            assert world.manager.stats().physical_bytes <= 4.2 * full
        assert np.array_equal(world.stored(world.retained[-1]), world.host())
        # 200 changed chunks of 100: twice the state, and what bounds the space costs no more.
        assert world.appended_bytes - full <= 2 * 2 * full
