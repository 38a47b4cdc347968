"""How many rows an operator is given at once, so that barriers need not wait for long (R51)."""

from __future__ import annotations

import pytest

from holdfast.regions.graph.step_size import FIRST_ROWS, STEPS_PER_TIMEOUT, StepSize

ROWS_MAX = 16_384


def fed(size: StepSize, ms_per_row: float, *, batches: int = 50) -> None:
    for _ in range(batches):
        size.took(size.rows * ms_per_row)


def test_without_overtaking_batches_are_large_however_slow_they_are() -> None:
    size = StepSize(ROWS_MAX, None)
    fed(size, 100)
    assert size.rows == ROWS_MAX


def test_quick_batches_grow_to_the_largest_size() -> None:
    size = StepSize(ROWS_MAX, 1000)
    assert size.rows == FIRST_ROWS
    fed(size, 0.0001)
    assert size.rows == ROWS_MAX


@pytest.mark.parametrize("ms_per_row", [0.01, 0.4, 7, 19])
def test_a_batch_takes_a_small_part_of_the_timeout(ms_per_row: float) -> None:
    size = StepSize(ROWS_MAX, 1000)
    fed(size, ms_per_row)
    assert size.rows * ms_per_row <= 1000 / STEPS_PER_TIMEOUT
    assert 4 * (size.rows + 1) * ms_per_row > 1000 / STEPS_PER_TIMEOUT


def test_rows_that_take_longer_than_that_come_one_by_one() -> None:
    size = StepSize(ROWS_MAX, 1000)
    fed(size, 400)
    assert size.rows == 1


def test_an_operator_that_alternates_does_not_make_it_swing() -> None:
    size = StepSize(ROWS_MAX, 1000)
    fed(size, 1)
    rows = size.rows
    for _ in range(20):
        size.took(0)
        size.took(rows)
    assert size.rows == rows


def test_the_first_batch_is_never_larger_than_the_largest_size() -> None:
    assert StepSize(10, 1000).rows == 10
