"""The minors of Spark that the plugin is built for, and the folders of its sources by range.

What depends on the minor lies in folders that name a range: ``from-4.2`` is for 4.2 and every later
minor, ``until-4.1`` for 4.1 and every earlier one, ``only-4.2`` for that one. A minor compiles the
folders whose range holds it, beside ``main``, which every minor compiles.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast_build.tools import ROOT, BuildError

#: By age. The newest is the one that the build environment's PySpark must be of.
MINORS = ("4.3",)
NEWEST = MINORS[-1]

SOURCES = ROOT / "spark_plugin" / "src"

_RANGE = re.compile(r"(?P<kind>from|until|only)-(?P<minor>[0-9]+\.[0-9]+)")


def source_folders(minor: str) -> list[Path]:
    """Return the folders that a minor is built from: ``main``, then the ranges that hold it.

    Raises
    ------
    BuildError
        If the name of a folder is no range.
    """
    ranges = sorted(folder for folder in SOURCES.iterdir() if folder.name != "main")
    return [SOURCES / "main", *(folder for folder in ranges if holds(folder.name, minor))]


def holds(name: str, minor: str) -> bool:
    """Tell whether a range, as a folder names it, holds a minor.

    Raises
    ------
    BuildError
        If the name is no range.
    """
    found = _RANGE.fullmatch(name)
    if found is None:
        raise BuildError(
            f"{SOURCES / name} is no range of Spark minors: from-4.2, until-4.1 and only-4.2 are."
        )
    bound, have = _numbers(found["minor"]), _numbers(minor)
    return {"from": have >= bound, "until": have <= bound, "only": have == bound}[found["kind"]]


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
