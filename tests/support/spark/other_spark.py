"""Runs pytest on a Spark minor, also another than the virtual environment's.

``python -m support.spark.other_spark 4.0 tests/spark/stores/test_crash.py``: the PySpark of
``requirements/spark/4.0.txt`` is installed once (450 MB) into a folder of the user's cache, with
the other packages in that file, and precedes the packages of this environment, with Holdfast. All
else is the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast._jars import SPARK_MINORS
from support import TESTS

PINS = TESTS.parent / "requirements" / "spark"

#: The places of parts of a source distribution in an installation.
PLACES = {
    "pyspark/": "pyspark/",
    "deps/jars/": "pyspark/jars/",
    "deps/bin/": "pyspark/bin/",
    "deps/sbin/": "pyspark/sbin/",
    "lib/": "pyspark/python/lib/",
}


def minors() -> list[str]:
    """The older minors with pins, by age."""
    return sorted(pin.stem for pin in PINS.glob("*.txt"))


def pyspark_of(minor: str) -> Path:
    """A folder with the pinned packages of a minor, for ``PYTHONPATH``.

    Raises a subprocess.CalledProcessError if it is missing and pip cannot install it.
    """
    pins = PINS / f"{minor}.txt"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    # Other pins have another folder, and so has another Python, which needs other wheels: a folder
    # never changes.
    key = pins.read_bytes() + str(sys.implementation.cache_tag).encode()
    folder = cache / f"pyspark-{minor}-{hashlib.sha256(key).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    # One of several processes fetches, and the others wait.
    with (cache / f"{minor}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _install(pins, folder)
    return folder


def _install(pins: Path, folder: Path) -> None:
    print(f"{pins.name} into {folder} (450 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=folder.parent) as scratch:
        download, partial = Path(scratch, "download"), Path(scratch, "partial")
        for path in (download, partial):
            path.mkdir()
        for archive in _fetched(pins, download):
            _unpack(archive, partial)
        partial.rename(folder)


def _fetched(pins: Path, folder: Path) -> list[Path]:
    """The source distribution of PySpark and the wheels that a file pins, checked by pip."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
    # Kept unpacked, so not in its archive, too.
    options = ("--no-cache-dir", "--no-deps", "--no-build-isolation", "--require-hashes")
    subprocess.run([*pip, *options, "--requirement", str(pins), "--dest", str(folder)], check=True)
    return list(folder.iterdir())


def _unpack(archive: Path, into: Path) -> None:
    """Put files in their places of an installation.

    PySpark's own installation packs all jars into a wheel before it unpacks them again, which takes
    longer than to fetch them.
    """
    if archive.suffix == ".whl":
        shutil.unpack_archive(archive, into, "zip")
        return
    with tarfile.open(archive) as files:
        for member in files:
            _, _, name = member.name.partition("/")
            for source, target in PLACES.items():
                if name.startswith(source) and member.isfile():
                    member.name = target + name.removeprefix(source)
                    files.extract(member, into, filter="data")


def environment_of(minor: str, own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment, that of this process by default, for a process on a minor."""
    inherited = own.get("PYTHONPATH")
    path = [] if minor == SPARK_MINORS[-1] else [str(pyspark_of(minor))]
    path += [inherited] if inherited else []
    return {
        **{name: value for name, value in own.items() if name != "SPARK_HOME"},
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
    }


def main() -> int:
    """Run pytest with the arguments that follow the minor."""
    minor = sys.argv[1] if len(sys.argv) > 1 else ""
    if minor not in (*minors(), "newest"):
        known = "|".join((*minors(), "newest"))
        print(f"usage: other_spark {known} [pytest's arguments]", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pytest", *sys.argv[2:]]
    env = environment_of(SPARK_MINORS[-1] if minor == "newest" else minor)
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
