"""Fields of Java objects that are not public."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of Spark or of the plugin, public or not."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, True, loader)


def field_of(spark: SparkSession, type_name: str, field: str, owner: Any) -> Any:
    """The value of a field. Py4j cannot read methods of all classes by itself."""
    found = java_class(spark, type_name).getDeclaredField(field)
    found.setAccessible(True)
    return found.get(owner)
