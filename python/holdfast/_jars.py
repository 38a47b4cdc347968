"""The jars of the Spark plugin in this installation, and which of them a version of Spark needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from holdfast._core import __version__

#: Minors of Spark that this release has a jar for and was tested on, the oldest first.
SPARK_MINORS: Final = ("4.0", "4.1", "4.2", "4.3")

#: 4.0.0 has another state store interface than all later patches.
OLDEST_SPARK: Final = "4.0.1"
SCALA: Final = "2.13"

_VERSION: Final = re.compile(r"(?P<major>[0-9]+)\.(?P<minor>[0-9]+)(?:\.(?P<patch>[0-9]+))?.*")


class UnsupportedSparkError(RuntimeError):
    """A version of Spark that no jar of this release is for; the message has the reason."""


def plugin_jars(*, spark: str | None = None) -> list[Path]:
    """Return the jars of the Spark plugin in this installation, for ``spark.jars`` or ``--jars``.

    Parameters
    ----------
    spark : str, optional
        Version of Spark that the jars are for, such as ``"4.0"`` or ``"4.0.3"``. The default is
        the installed PySpark's version, or the newest minor without PySpark.

    Returns
    -------
    list of pathlib.Path
        Absolute paths: the classes for that minor, and the native library, which all minors share.
        For a minor newer than this release, the classes are for the newest one it knows. The
        plugin then checks at its start whether they fit.

    Raises
    ------
    ValueError
        If `spark` is no version, or one that Holdfast does not run on.
    RuntimeError
        If `spark` is not given, and Holdfast does not run on the installed PySpark.
    FileNotFoundError
        If the installation has no such jar.

    Examples
    --------
    >>> [jar.name for jar in holdfast.plugin_jars(spark="4.3")]
    ['holdfast-spark-4.3_2.13-0.1.0.jar', 'holdfast-native-0.1.0.jar']
    """
    minor = wanted_minor(spark)
    names = (
        f"holdfast-spark-{minor}_{SCALA}-{__version__}.jar",
        f"holdfast-native-{__version__}.jar",
    )
    return [_jar(name) for name in names]


def _jar(name: str) -> Path:
    jar = Path(__file__).resolve().parent / "_native" / name
    if not jar.is_file():
        raise FileNotFoundError(
            f"the Spark plugin of Holdfast is missing from this installation: {jar}. Install "
            "Holdfast again from a wheel, or from source with `pip install .`. `python -m holdfast "
            "doctor` looks at all that Holdfast needs"
        )
    return jar


def wanted_minor(spark: str | None) -> str:
    """Return the minor whose jar serves a version of Spark, by default PySpark's."""
    if spark is not None:
        try:
            return minor_for(spark)
        except UnsupportedSparkError as error:
            raise ValueError(str(error)) from None
    try:
        import pyspark
    except ImportError:
        return SPARK_MINORS[-1]
    return minor_for(pyspark.__version__)


def minor_for(version: str) -> str:
    """Return the minor for a version; ValueError, or UnsupportedSparkError if no jar is for it."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is no version of Spark: 4.0 and 4.0.3 are")
    major, minor = int(found["major"]), int(found["minor"])
    known = [tuple(map(int, name.split("."))) for name in SPARK_MINORS]
    if (major, minor) < known[0] or f"{major}.{minor}.{found['patch']}" == "4.0.0":
        raise UnsupportedSparkError(
            f"Holdfast {__version__} runs on Spark {OLDEST_SPARK} and newer, not on {version}: the "
            "interface of state stores that it implements is not in older versions"
        )
    if major > known[-1][0]:
        raise UnsupportedSparkError(
            f"Holdfast {__version__} is for Spark {known[-1][0]}, not for {version}: a major may "
            "change everything that a state store relies on. Install a Holdfast made for it"
        )
    name = f"{major}.{minor}"
    return name if name in SPARK_MINORS else SPARK_MINORS[-1]
