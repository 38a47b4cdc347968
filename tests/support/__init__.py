"""Parts that tests share, and programs that tests start.

`support.spark` is for tests on Spark, `support.regional` for regional pipelines without it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: The folder that has this package.
TESTS = Path(__file__).resolve().parents[1]


def program(name: str) -> str:
    """The path of a program of this package, for instance ``spark/crash_job.py``."""
    return str(TESTS / "support" / name)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of this process and `more`, for a process with the imports of tests."""
    inherited = os.environ.get("PYTHONPATH")
    path = [str(TESTS.parent / "examples"), str(TESTS), *([inherited] if inherited else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **(more or {})}


def clean_environment() -> dict[str, str]:
    """The environment of this process without settings of Spark and Python."""
    others = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {"SPARK_LOCAL_IP": "127.0.0.1"}


def preloadable(source: Path, folder: Path) -> Path:
    """A C file as a library in a folder, for ``LD_PRELOAD``."""
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed, as for Rust"
    library = folder / f"{source.stem}.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source), "-ldl"], check=True)
    return library


def run_until_killed(name: str, *arguments: str | Path) -> None:
    """Run a program of this package that kills itself."""
    done = subprocess.run(
        [sys.executable, program(name), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]
