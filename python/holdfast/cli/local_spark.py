"""A local session of Spark for commands, and the text of its errors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast._options import STORE
from holdfast._spark import spark_conf
from holdfast.cli.java import stderr_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needed() -> dict[str, str]:
    """Return settings that Holdfast needs. Its options come from spark-defaults.conf."""
    option = f"{STORE}.holdfast."
    # Commands publish entries of Spark's logs durably, whatever a query does.
    own = f"{option}sparkFiles"
    conf = spark_conf()
    return {key: conf[key] for key in conf if key == own or not key.startswith(option)}


@contextmanager
def session(
    what: str, settings: dict[str, str], *, master: str = "local[*]"
) -> Iterator[SparkSession]:
    """Run a session of Spark that says nothing, with the settings of spark-defaults.conf.

    Parameters
    ----------
    what : str
        The use of it, for the error that it is not installed.
    settings : dict of str to str
        Settings that replace those of spark-defaults.conf.
    """
    if find_spec("pyspark") is None:
        raise OSError(f"Spark is needed {what}: install 'holdfast-spark[spark]'")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as log:
        with stderr_to(log):
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise what Java throws in the block as OSError, with the message of its first cause.

    PySpark turns some exceptions of Java, such as IllegalArgumentException, into its own.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        if cause is None:
            raise OSError(str(error)) from None
        while cause.getCause() is not None:
            cause = cause.getCause()
        raise OSError(f"{cause.getClass().getSimpleName()}: {cause.getMessage()}") from None
