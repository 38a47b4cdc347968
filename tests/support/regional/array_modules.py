"""Array modules for tests of states: NumPy, a substitute for a device, CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.regions.state.kinds import array
from holdfast.regions.task import array_modules
from support.regional.stand_in_device import StandInDevice, StandInModule

MODULES = ("numpy", "stand-in", "cupy")

Replace = Callable[[Any, str, Any], None]
"""Sets an attribute, like `setattr` and pytest's `monkeypatch.setattr`."""


def missing(name: str) -> str | None:
    """The reason why a module cannot be used here, if any."""
    return array_modules.missing_gpu() if name == "cupy" else None


def array_module(name: str, replace: Replace) -> Any:
    """The module of this name; the substitute replaces CuPy in registries and pipelines."""
    if name != "stand-in":
        return importlib.import_module(name)
    module = StandInModule(StandInDevice())
    found = array.device_of

    def device_of(xp: Any) -> Any:
        return xp.device if isinstance(xp, StandInModule) else found(xp)

    replace(array, "device_of", device_of)
    replace(array_modules, "array_module", lambda *, gpu: module if gpu else np)
    replace(array_modules, "missing_gpu", lambda: None)
    return module


def device_of(xp: Any) -> Any:
    """The device that states of a module are on."""
    return array.device_of(xp)


def on_host(array: Any) -> np.ndarray:
    """An array of any of these modules, in host memory."""
    return array if isinstance(array, np.ndarray) else array.get()  # type: ignore[no-any-return]
