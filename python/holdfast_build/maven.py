"""Jars that a pom names, fetched once by Maven and checked.

A folder with a ``pom.xml`` has a file ``sha256``, with a line per jar as ``sha256sum`` writes them.
These files pin versions and checksums. Maven's settings name the place to fetch from.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from holdfast_build.tools import BuildError, say


class MissingJarsError(BuildError):
    """Jars are missing, and Maven cannot fetch them."""


_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT_S = 600


def jars(pom: Path, into: Path) -> list[Path]:
    """Return the jars of a pom in the order of ``sha256``, fetched if they are missing.

    `pom` is the folder with ``pom.xml`` and ``sha256``, and `into` the folder for the jars, which
    are all checked.
    """
    lines = (pom / "sha256").read_text().splitlines()
    wanted = {name: digest for digest, name in (line.split() for line in lines)}
    into.mkdir(parents=True, exist_ok=True)
    # One of several processes fetches the jars, and the others wait.
    with into.with_name(f".{into.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in wanted if not (into / name).exists()]
        if missing:
            _fetch(pom, into, missing)
    _check(into, wanted)
    return [into / name for name in wanted]


def _fetch(pom: Path, into: Path, missing: list[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingJarsError(
            f"{', '.join(missing)} of {pom / 'pom.xml'}: not in {into}, and there is no Maven (mvn "
            "on PATH) to fetch jars: install it (Debian and Ubuntu: apt install maven), or copy "
            "them there"
        )
    say(f"mvn fetches the jars of {pom / 'pom.xml'} into {into}")
    try:
        done = subprocess.run(
            [
                *(maven, "-q", "-B", "-f", str(pom / "pom.xml"), _GOAL),
                *("-DincludeScope=runtime", f"-DoutputDirectory={into}"),
            ],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingJarsError(
            f"Maven did not fetch the jars of {pom / 'pom.xml'} within {_TIMEOUT_S} s"
        ) from None
    if done.returncode != 0:
        raise MissingJarsError(
            f"Maven could not fetch the jars of {pom / 'pom.xml'}: {done.stdout[-2000:]}"
        )


def _check(folder: Path, wanted: Mapping[str, str]) -> None:
    for name, digest in wanted.items():
        jar = folder / name
        if not jar.exists():
            raise BuildError(f"{jar} is not among what Maven fetched: is its name in the pom?")
        with jar.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            raise BuildError(
                f"{jar} has sha256 {found}, expected {digest}. Delete it and try again"
            )
