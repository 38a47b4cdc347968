"""One run of the benchmark of scale in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script finds what is beside it; this is where the packages are.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from harness.process import Reporter, report_to_parent
from harness.providers import start_session
from holdfast import plugin_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark(spec: dict[str, Any]) -> SparkSession:
    """Start the driver, with the classes of the benchmark beside those of the plugin."""
    classes = [spec["classes"], *map(str, plugin_jars())]
    return start_session(
        provider="holdfast",
        partitions=spec["executors"] * spec["partitions_each"],
        driver_memory=spec["driver_memory"],
        extra={"spark.driver.extraClassPath": ":".join(classes), **spec["settings"]},
    )


def start(spec: dict[str, Any], spark: SparkSession, number: int) -> Any:
    """Make a run of the query, on a driver that has just begun."""
    jvm: Any = spark._jvm
    return jvm.io.holdfast.bench.ScaleBench(
        spark._jsparkSession.sparkContext(),
        spark._jsparkSession.sessionState().newHadoopConf(),
        spec["checkpoints"][number],
        spec["executors"],
        spec["partitions_each"],
        spec["seed"],
    )


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the query up to a restart and on; report the figures of each batch."""
    for number, batches in enumerate((spec["batches"], spec["batches_restarted"])):
        spark = start_spark(spec)
        jvm: Any = spark._jvm
        query = start(spec, spark, number)
        report("started", run=number, **json.loads(query.start()))
        for _ in range(batches):
            report("batch", run=number, **json.loads(query.batch()))
        query.end()
        if number:
            # The driver remains, without executors and the content of the store.
            jvm.io.holdfast.bench.ScaleBench.emptyStore()
            report("heap", bytes=jvm.io.holdfast.bench.ScaleBench.heapBytes())
        spark.stop()
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
