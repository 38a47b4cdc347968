"""docs/reference says what the plugin and Spark say of their settings."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast import _spark
from holdfast._options import OPTIONS
from support.markdown import cells_of
from support.reference import monitoring, settings
from support.spark.java_fields import field_of, java_class

pytestmark = pytest.mark.spark

CONF = "io.holdfast.spark.HoldfastConf"


def declared(spark: SparkSession) -> dict[str, str]:
    """Defaults of the plugin's settings, by key."""
    constants = java_class(spark, f"{CONF}$Setting").getEnumConstants()
    return {
        field_of(spark, f"{CONF}$Setting", "key", one): field_of(
            spark, f"{CONF}$Setting", "defaultValue", one
        )
        for one in constants
    }


def test_the_plugin_has_the_settings_of_the_package_with_the_same_defaults(
    spark: SparkSession,
) -> None:
    written = holdfast.spark_conf()
    assert declared(spark) == {one.key: written[one.key] for one in OPTIONS.values()}


def test_the_plugin_takes_whatever_the_package_allows(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    for name, option in OPTIONS.items():
        allowed = option.allowed
        values: list[Any] = [*option.names]
        if allowed.unit:
            least = 1e-9 if allowed.above else allowed.least
            values = [least, allowed.most or (1 << 63) - 1]
        elif allowed.kind == "flag":
            values = [True, False]
        assert values
        for value in values:
            given: dict[str, Any] = {name: value}
            jvm.io.holdfast.spark.HoldfastConf(holdfast.spark_conf(**given))


def test_spark_has_the_settings_that_the_reference_lists_with_these_defaults(
    spark: SparkSession,
) -> None:
    text = settings.DOCUMENT.read_text().partition("## Spark's settings")[2].partition("\n## ")[0]
    listed = {key.strip("`"): default for key, default, _ in cells_of(text)}
    assert "spark.sql.streaming.minBatchesToRetain" in listed
    jvm: Any = spark._jvm
    conf = jvm.org.apache.spark.sql.internal.SQLConf()
    assert {key: conf.getConfString(key) for key in listed} == listed


UNITS = {"Sum": "number", "Size": "bytes", "Timing": "ms"}


def test_the_reference_has_the_metrics_of_the_progress_as_the_plugin_declares_them(
    spark: SparkSession,
) -> None:
    jvm: Any = spark._jvm
    declared = {}
    for metric in jvm.io.holdfast.spark.store.StoreMetrics.all(True):
        kind = metric.getClass().getSimpleName()
        unit = UNITS[kind.removeprefix("StateStoreCustom").removesuffix("Metric")]
        declared[metric.name()] = (unit, metric.desc().removeprefix("Holdfast: "))
    assert monitoring.of_the_progress() == declared
    assert set(_spark.UI_METRICS) <= declared.keys()
