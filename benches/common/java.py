"""Compile the Java sources of the benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

BENCHES = Path(__file__).resolve().parents[1]

# The build backend is not part of the installed package. It comes last on the path, so that the
# package is the installed one, with its native parts.
sys.path.append(str(BENCHES.parent / "python"))

from holdfast_build.minors import pyspark_jars  # noqa: E402
from holdfast_build.plugin import javac  # noqa: E402
from holdfast_build.tools import BuildError  # noqa: E402

__all__ = ["BuildError", "compile_java"]


def compile_java(folder: Path, *, into: Path, jars: Sequence[Path] = ()) -> Path:
    """Compile all sources below a folder against Spark's jars and `jars`, and return `into`.

    Raises
    ------
    BuildError
        If there is no JDK, or the sources do not compile.
    """
    into.mkdir(parents=True)
    class_path = os.pathsep.join([*map(str, jars), f"{pyspark_jars()}/*"])
    javac(sorted(folder.rglob("*.java")), class_path=class_path, classes=into)
    return into
