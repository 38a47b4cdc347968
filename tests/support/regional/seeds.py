"""Seeds of random histories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_and_more(some: Iterable[int], more: Iterable[int]) -> list[Any]:
    """Some seeds for each run of the tests, and more for the full one."""
    return [*some, *(pytest.param(seed, marks=pytest.mark.full) for seed in more)]
