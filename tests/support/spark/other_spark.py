"""Runs pytest on another Spark minor than that of the virtual environment.

``python -m support.spark.other_spark 4.0 tests/spark/test_crash.py``: the PySpark of
``requirements/spark/4.0.txt`` is installed once (450 MB) into a folder of the user's cache, and
goes in front of the packages of this environment, Holdfast among them. All else is the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support import TESTS

PINS = TESTS.parent / "requirements" / "spark"

#: Where the parts of a source distribution are in an installation.
PLACES = {
    "pyspark/": "pyspark/",
    "deps/jars/": "pyspark/jars/",
    "deps/bin/": "pyspark/bin/",
    "deps/sbin/": "pyspark/sbin/",
    "lib/": "pyspark/python/lib/",
}


def minors() -> list[str]:
    """The minors that there are pins for, by age."""
    return sorted(pin.stem for pin in PINS.glob("*.txt"))


def pyspark_of(minor: str) -> Path:
    """A folder with the PySpark of a minor alone, to be put on ``PYTHONPATH``.

    Raises
    ------
    subprocess.CalledProcessError
        If it is not there and pip cannot install it.
    """
    pins = PINS / f"{minor}.txt"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    # Other pins are another folder: what is there is never changed.
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    folder = cache / f"pyspark-{minor}-{digest}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"pyspark-{minor}-", dir=cache))
    try:
        print(f"PySpark {minor} into {folder} (450 MB)", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as download:
            _unpack(_fetched(pins, Path(download)), partial)
        try:
            partial.rename(folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _fetched(pins: Path, folder: Path) -> Path:
    """The source distribution that a file of pins names, checked by pip."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
    # Kept unpacked, so not once more as it came.
    options = ("--no-cache-dir", "--no-deps", "--no-build-isolation", "--require-hashes")
    subprocess.run([*pip, *options, "--requirement", str(pins), "--dest", str(folder)], check=True)
    (archive,) = folder.iterdir()
    return archive


def _unpack(archive: Path, into: Path) -> None:
    """Put files where PySpark's installation has them.

    An installation packs all jars into a wheel before it unpacks them again, which takes longer
    than to fetch them.
    """
    with tarfile.open(archive) as files:
        for member in files:
            _, _, name = member.name.partition("/")
            for source, target in PLACES.items():
                if name.startswith(source) and member.isfile():
                    member.name = target + name.removeprefix(source)
                    files.extract(member, into, filter="data")


def environment_of(minor: str, own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment, that of this process by default, for a process on another minor."""
    inherited = own.get("PYTHONPATH")
    path = [str(pyspark_of(minor)), *([inherited] if inherited else [])]
    return {
        **{name: value for name, value in own.items() if name != "SPARK_HOME"},
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
    }


def main() -> int:
    """Run pytest with the arguments that follow the minor."""
    minor = sys.argv[1] if len(sys.argv) > 1 else ""
    if minor not in minors():
        print(f"usage: other_spark {'|'.join(minors())} [pytest's arguments]", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "pytest", *sys.argv[2:]]
    return subprocess.run(command, env=environment_of(minor), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
