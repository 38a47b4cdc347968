"""Array modules of the tests: NumPy, a stand-in for a device, and CuPy where there is a device."""

from __future__ import annotations

from typing import Any

import pytest

from support.regional import array_modules
from support.regional.array_modules import MODULES


def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    reason = array_modules.missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    return array_modules.array_module(request.param, monkeypatch.setattr)


@pytest.fixture(params=MODULES)
def xp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array module."""
    return module(request, monkeypatch)


@pytest.fixture(params=[name for name in MODULES if name != "numpy"])
def device_xp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array module whose arrays are on a device, or on a stand-in for one."""
    return module(request, monkeypatch)
