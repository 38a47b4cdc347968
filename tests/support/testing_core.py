"""The extension with a part for tests: a server for clients of a manager."""

from __future__ import annotations

import importlib.util
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@cache
def load_testing_core() -> ModuleType:
    """Build and load the extension with its feature ``testing``, next to the wheel's.

    Its classes are its own: objects of `holdfast._core` are strangers to it.
    """
    build = ["cargo", "build", "--package", "holdfast-py", "--features", "testing", "--locked"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=900)
    library = ROOT / "target" / "debug" / "lib_core.so"
    found = importlib.util.spec_from_file_location("_core", library)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
