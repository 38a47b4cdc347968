"""What all tests of pipelines without Spark share."""

from __future__ import annotations

import pytest
from quick_clock import QuickClock

from holdfast.regions import driver


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> QuickClock:
    """The clock of the drivers that the test starts."""
    clock = QuickClock()

    def of_next_driver() -> QuickClock:
        clock.resume()
        return clock

    monkeypatch.setattr(driver, "Clock", of_next_driver)
    return clock
