"""A local session of Spark for commands, and the text of its errors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast._options import STORE
from holdfast._spark import OF_QUERIES, spark_conf
from holdfast.cli.java import stderr_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needed() -> dict[str, str]:
    """Return settings that Holdfast needs. Its options come from spark-defaults.conf."""
    option = f"{STORE}.holdfast."
    # Commands publish entries of Spark's logs durably, unlike some queries.
    own = f"{option}sparkFiles"
    conf = spark_conf() | OF_QUERIES
    return {key: conf[key] for key in conf if key == own or not key.startswith(option)}


@contextmanager
def session(
    what: str, settings: dict[str, str], *, master: str = "local[*]"
) -> Iterator[SparkSession]:
    """Run a session of Spark that logs nothing, with the settings of spark-defaults.conf.

    `settings` replace these. `what` is its use, for the error that Spark is not installed.
    """
    if find_spec("pyspark") is None:
        raise OSError(f"Spark is needed {what}: install 'holdfast-spark[spark]'")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as log:
        try:
            with java_errors(), stderr_to(log):
                spark = builder.getOrCreate()
        except OSError as error:
            # PySpark does not know why its JVM ended.
            log.seek(0)
            ended = re.search(rb'^Exception in thread "main" (.*)$', log.read(), re.MULTILINE)
            raise OSError(ended[1].decode() if ended else str(error)) from None
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise Java's exceptions in the block as OSError, with Holdfast's message and the first cause.

    PySpark turns some exceptions of Java, such as IllegalArgumentException, into its own.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise OSError(reason(error)) from None


def line(error: Exception) -> str:
    """Return an error of PySpark in one line; its first line may be empty."""
    from pyspark.errors import PySparkException

    text = str(error) if isinstance(error, PySparkException) else reason(error)
    return next(filter(None, text.splitlines()), type(error).__name__)


def reason(error: Exception) -> str:
    """Return the message of an exception of Java: that of Holdfast's and of the first cause."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return str(error)
    said = ""
    while True:
        is_first, kind = cause.getCause() is None, cause.getClass()
        is_own = kind.getName().startswith("io.holdfast.")
        text = cause.getMessage() if is_own else f"{kind.getSimpleName()}: {cause.getMessage()}"
        if is_first or (not said and is_own):
            said = f"{said.removesuffix('.')}: {text}" if said else text
        if is_first:
            return said
        cause = cause.getCause()
