"""The Spark session in which stores are driven below any query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.providers import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(spec: dict[str, Any]) -> SparkSession:
    """Start Spark with the provider and the compiled classes that a specification names."""
    return start_session(
        provider=spec["provider"],
        partitions=1,
        driver_memory=spec["driver_memory"],
        extra={
            "spark.driver.extraClassPath": spec["classes"],
            # A report to Spark's coordinator, of a query that does not run here.
            "spark.sql.streaming.stateStore.commitValidation.enabled": "false",
            **spec.get("settings", {}),
        },
    )
