"""Lines that the driver of a session logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def log_of(spark: SparkSession, name: str, level: str = "WARN") -> Iterator[Any]:
    """Lines from a level on under a name, as a ``java.io.StringWriter``."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    text = jvm.java.io.StringWriter()
    configurator = log4j.core.config.Configurator
    configurator.setLevel(name, getattr(log4j.Level, level))
    logger = log4j.LogManager.getLogger(name)
    appender = log4j.core.appender.WriterAppender.createAppender(
        None, None, text, "test", False, True
    )
    appender.start()
    logger.addAppender(appender)
    try:
        yield text
    finally:
        logger.removeAppender(appender)
        configurator.setLevel(name, log4j.Level.ERROR)
