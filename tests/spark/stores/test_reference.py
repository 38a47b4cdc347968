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

pytestmark = pytest.mark.spark


def test_the_plugin_has_the_declarations_of_the_package(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert jvm.io.holdfast.spark.HoldfastConf.keys() == ", ".join(
        option.key for option in OPTIONS.values()
    )


def test_the_plugin_takes_whatever_the_package_allows(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    for name, option in OPTIONS.items():
        more: dict[str, list[Any]] = {
            "flag": [True, False],
            "share": [1e-9, 1],
            "size": [option.least, option.most],
            "count": [option.least, option.most],
            "path": ["s3a://Bucket/dead"],
            "name": [],
        }
        for value in [*option.names, *more[option.type]]:
            given: dict[str, Any] = {"dead_letters": "dead", name: value}
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
