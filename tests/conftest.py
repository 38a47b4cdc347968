"""The order of the tests, and the examples that they try."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Examples are the same in each run and on each machine; a failure says how to repeat it.
settings.load_profile("ci")

# `make test-full` and the nightly run draw others.
settings.register_profile("fresh", settings.get_profile("ci"), derandomize=False)

# Hypothesis also tries numbers that stand in loaded modules. Then other tests of a run would change
# the examples of a test.
providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with Spark, which take long, come first.

    So what is left for one of two processes in the end takes little.
    """
    items.sort(key=lambda item: "spark" not in item.path.parts)
