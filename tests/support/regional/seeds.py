"""Seeds of random histories."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

#: The first seed of the histories that are marked `full`: `make test-full` draws one each time, and
#: ``HOLDFAST_SEED`` may be one that failed.
FIRST: Final = int(os.environ.get("HOLDFAST_SEED", "1000"))


def new_seeds(count: int) -> range:
    """Seeds for tests that are marked `full`."""
    return range(FIRST, FIRST + count)


def some_and_more(some: Iterable[int], more: int) -> list[Any]:
    """Some seeds for each run of the tests, and more for the full one."""
    return [*some, *(pytest.param(seed, marks=pytest.mark.full) for seed in new_seeds(more))]
