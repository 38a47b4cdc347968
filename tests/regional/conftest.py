"""What all tests of pipelines without Spark share."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.files.mounted import MountedPath
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
def tmp_path(tmp_path: Path) -> MountedPath:
    """A folder such as pipelines make of the one that a user names."""
    return MountedPath(tmp_path)


@pytest.fixture
def hooks() -> Hooks:
    """What the test has its operators do."""
    return Hooks()
