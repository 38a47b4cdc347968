"""What all tests of pipelines without Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.regions.driver import pipeline_driver as driver
from support.regional import ending
from support.regional.pipelines import Troubled
from support.regional.quick_clock import QuickClock
from support.regional.split_files import Placed


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> QuickClock:
    """The clock of the drivers that the test starts."""
    clock = QuickClock()

    def of_next_driver() -> QuickClock:
        clock.resume()
        return clock

    monkeypatch.setattr(driver, "Clock", of_next_driver)
    return clock


@pytest.fixture(autouse=True)
def no_trouble() -> Iterator[None]:
    """No test meets the trouble of another: copied operators learn of it by their class."""
    _calm()
    yield
    _calm()


def _calm() -> None:
    Troubled.trouble = None
    Placed.trouble = None
    ending.calm()
