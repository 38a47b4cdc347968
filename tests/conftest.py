"""The order of the tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with Spark, which take long, come first.

    So what is left for one of two processes in the end takes little.
    """
    items.sort(key=lambda item: "spark" not in item.path.parts)
