"""One query over many batches in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.process import Reporter, report_to_parent
from harness.providers import start_session

# A script finds what is beside it; this is where the packages are.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from memory.native import sample, tracking_settings, trim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POLL_S = 0.25


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run batches without a pause, and report the memory of the JVM every so many batches."""
    heap = spec["driver_memory"]
    spark = start_session(
        provider=spec["provider"],
        partitions=spec["partitions"],
        driver_memory=heap,
        extra=tracking_settings(heap),
    )
    pid = _pid(spark)
    running = _query(spark, keys=spec["keys"], checkpoint=spec["checkpoint"])
    due = spec["every"]
    while due <= spec["batches"]:
        if running.awaitTermination(_POLL_S):
            raise RuntimeError("the query has ended")
        progress = running.lastProgress
        if progress is None or progress["batchId"] + 1 < due:
            continue
        batch = progress["batchId"] + 1
        state_bytes = sum(operator["memoryUsedBytes"] for operator in progress["stateOperators"])
        report("sample", **sample(pid, batch=batch, state_bytes=state_bytes).to_json())
        due = (batch // spec["every"] + 1) * spec["every"]
    # Memory that goes away now was kept by malloc, and not in use.
    trim(pid)
    report("trimmed", **sample(pid, batch=batch, state_bytes=state_bytes).to_json())
    running.stop()
    report("done")
    spark.stop()


def _query(spark: SparkSession, *, keys: int, checkpoint: str) -> StreamingQuery:
    """Count rows by key; every batch changes every key, so that the state keeps its size."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", keys)
        .option("numPartitions", 1)
        .load()
    )
    return (
        rows.groupBy((rows.value % keys).alias("key"))
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )


def _pid(spark: SparkSession) -> int:
    assert spark._jvm is not None
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


if __name__ == "__main__":
    report_to_parent(run, dict)
