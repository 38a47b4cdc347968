"""Runs notebooks as Jupyter does, with nbclient and a kernel that are fetched once.

They are in no environment that Holdfast is built and tested in, because they need 35 packages: pip
installs the pins of ``requirements/notebooks.txt`` into ``~/.cache/holdfast``. That is 15 MB to
fetch, and 106 MB there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support import TESTS

PINS = TESTS.parent / "requirements" / "notebooks.txt"

_TIMEOUT_S = 400

_RUN = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, sys.argv[2])
"""


class MissingPackagesError(RuntimeError):
    """The packages are missing and cannot be fetched here."""


def packages() -> Path:
    """Return a folder with nbclient and a kernel for ``PYTHONPATH``, or MissingPackagesError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    # Other pins have another folder, and so has another Python, which needs other wheels.
    key = PINS.read_bytes() + str(sys.implementation.cache_tag).encode()
    folder = cache / f"notebooks-{hashlib.sha256(key).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    # One of several processes fetches, and the others wait.
    with (cache / "notebooks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as scratch:
                _install(Path(scratch, "packages")).rename(folder)
    return folder


def _install(folder: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:")
    done = subprocess.run(
        [*pip, *options, "--requirement", str(PINS), "--target", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingPackagesError(f"pip could not install {PINS}: {done.stderr[-1000:]}")
    return folder


def run_notebook(notebook: Path, folder: Path) -> list[dict[str, Any]]:
    """Run all cells of a notebook in a folder, and return its cells with their outputs.

    Raises a MissingPackagesError if it cannot run, and an AssertionError with the error of a cell.
    """
    done = folder / f"{notebook.stem}-done.ipynb"
    path = [str(packages()), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "IPYTHONDIR": str(folder / ".ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".jupyter"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, str(notebook), str(done)],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    cells: list[dict[str, Any]] = json.loads(done.read_text())["cells"]
    return cells
