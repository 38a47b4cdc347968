"""What all tests of pipelines without Spark share."""

from __future__ import annotations

import pytest

from holdfast.regions.driver import pipeline_driver as driver
from support.regional.hooks import Hooks
from support.regional.quick_clock import QuickClock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> QuickClock:
    """The clock of the drivers that the test starts."""
    clock = QuickClock()

    def of_next_driver() -> QuickClock:
        clock.resume()
        return clock

    monkeypatch.setattr(driver, "Clock", of_next_driver)
    return clock


@pytest.fixture
def hooks() -> Hooks:
    """What the test has its operators do."""
    return Hooks()
