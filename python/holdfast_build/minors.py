"""The minors of Spark that the plugin is built for: sources by range, and jars to compile against.

Sources that depend on the minor are in folders that name a range: ``from-4.2`` is for 4.2 and every
later minor, ``until-4.1`` for 4.1 and every earlier one, ``only-4.2`` for that one. A minor
compiles ``main`` and the folders whose range holds it.

A source that depends little on the minor has the form of the newest one. For older minors `form`
leaves out the lines that end with a range, such as ``// from-4.2``. It makes code of comments that
begin with one, such as ``// until-4.1: return false;``, and renames packages.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from holdfast_build import maven
from holdfast_build.tools import ROOT, BuildError

#: By age. PySpark in the build environment is of the newest; Maven has the jars of the others.
MINORS = ("4.0", "4.1", "4.2", "4.3")
NEWEST = MINORS[-1]

#: The first release that Holdfast runs on: 4.0.0 has another state store interface.
OLDEST_RELEASE = "4.0.1"

SOURCES = ROOT / "spark_plugin" / "src"
POMS = ROOT / "spark_plugin" / "jars"
FETCHED = ROOT / "build" / "jars"

#: Libraries that Spark's interfaces mention. All minors take them from PySpark.
SHARED_LIBRARIES = (
    "commons-io",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "jakarta.servlet-api",
    "jsr305",
    "kryo-shaded",
    "metrics-core",
    "scala-library",
    "scala-reflect",
    "scala-xml_2.13",
    "slf4j-api",
    "xbean-asm9-shaded",
)

#: Packages of Spark within `STREAMING` that minors until 4.0 do not have: their classes are in
#: `STREAMING` itself.
STREAMING = "org.apache.spark.sql.execution.streaming"
NEW_PACKAGES = (
    "checkpointing",
    "runtime",
    "sinks",
    "operators.stateful.join",
    "operators.stateful",
)

_RANGE = re.compile(r"(?P<kind>from|until|only)-(?P<minor>[0-9]+\.[0-9]+)")
_COMMENT_OF_RANGE = re.compile(rf"// (?P<range>{_RANGE.pattern}): (?P<code>.*)")
_LINE_OF_RANGE = re.compile(rf".* // (?P<range>{_RANGE.pattern})\n")


def source_folders(minor: str) -> list[Path]:
    """Return the folders that a minor is built from: ``main``, then the ranges that hold it."""
    ranges = sorted(folder for folder in SOURCES.iterdir() if folder.name != "main")
    return [SOURCES / "main", *(folder for folder in ranges if holds(folder.name, minor))]


def holds(name: str, minor: str) -> bool:
    """Tell whether the range in a folder's name holds a minor."""
    found = _RANGE.fullmatch(name)
    if found is None:
        raise BuildError(
            f"{SOURCES / name} is no range of Spark minors: from-4.2, until-4.1 and only-4.2 are."
        )
    bound, have = _numbers(found["minor"]), _numbers(minor)
    return {"from": have >= bound, "until": have <= bound, "only": have == bound}[found["kind"]]


def form(source: str, minor: str) -> str:
    """Return a Java source as a minor compiles it."""
    if holds("until-4.0", minor):
        for package in NEW_PACKAGES:
            source = source.replace(f"{STREAMING}.{package}", STREAMING)
    source = _COMMENT_OF_RANGE.sub(
        lambda line: line["code"] if holds(line["range"], minor) else line[0], source
    )
    return _LINE_OF_RANGE.sub(lambda line: line[0] if holds(line["range"], minor) else "", source)


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def class_path(minor: str) -> str:
    """Return the jars that a minor's plugin is compiled against, in ``javac``'s notation."""
    installed = pyspark_jars()
    if minor == NEWEST:
        return f"{installed}/*"
    own = maven.jars(POMS / minor, FETCHED / f"spark-{minor}")
    shared = (jar for name in SHARED_LIBRARIES for jar in installed.glob(f"{name}-[0-9]*.jar"))
    return os.pathsep.join(map(str, [*own, *shared]))


def pyspark_jars() -> Path:
    """Return the folder with the jars of the PySpark in the build environment."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BuildError(
            f"pyspark {NEWEST} is not installed in the build environment ({sys.executable}). "
            "Its jars are what the Spark plugin is compiled against. Build with isolation "
            "(plain `pip install .`), or install requirements/dev.txt first."
        )
    home = Path(spec.origin).parent
    said = (home / "version.py").read_text()
    found = re.search(r"""__version__[^=]*=\s*["']([^"']+)["']""", said)
    have = found.group(1) if found else "unknown"
    if not have.startswith(f"{NEWEST}."):
        raise BuildError(f"the build environment has pyspark {have}, but {NEWEST} is needed.")
    return home / "jars"
