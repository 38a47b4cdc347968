"""The order of the tests, and the examples that they try."""

from __future__ import annotations

import pytest
from hypothesis import settings

# By default, examples are the same in each run of continuous integration. A failure says how to
# repeat it.
settings.register_profile("fresh", settings.get_profile("ci"), derandomize=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with Spark, which take long, come first.

    So what is left for one of two processes in the end takes little.
    """
    items.sort(key=lambda item: "spark" not in item.path.parts)
