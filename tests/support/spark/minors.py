"""The Spark minor that tests run on, and its place among the others."""

from __future__ import annotations

import pyspark

from holdfast._jars import SPARK_MINORS

NEWEST = SPARK_MINORS[-1]


def minor_of(version: str) -> str:
    """``4.0`` of ``4.0.1``."""
    return ".".join(version.split(".")[:2])


INSTALLED = minor_of(pyspark.__version__)

IS_NEWEST = INSTALLED == NEWEST


def is_older_than(minor: str) -> bool:
    """True if the installed minor is older than another."""
    return _numbers(INSTALLED) < _numbers(minor)


def _numbers(minor: str) -> list[int]:
    return list(map(int, minor.split(".")))
