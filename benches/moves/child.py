"""One step in a process of its own, a batch of the query or a command: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.figures import BatchFigures
from harness.process import Reporter, report_to_parent
from harness.providers import start_session
from holdfast.cli import local_spark
from holdfast.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch(spec: dict[str, Any], report: Reporter) -> None:
    """Run one batch of a query that counts rows by key, on more rows."""
    spark = _session(spec, report)
    folder, (first, end) = Path(spec["folder"]), spec["rows"]
    source, staged = folder / "in", folder / "staged"
    source.mkdir(exist_ok=True)
    pq.write_table(pa.table({"key": pa.array(range(first, end), pa.int64())}), staged)
    staged.rename(source / f"{len(list(source.iterdir()))}.parquet")
    running = (
        spark.readStream.schema("key long")
        .parquet(str(source))
        .groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    (progress,) = (json.loads(one.json) for one in running.recentProgress)
    report("batch", **asdict(BatchFigures.from_progress(progress)))
    spark.stop()


def command(spec: dict[str, Any], report: Reporter) -> None:
    """Run a command of Holdfast."""
    real = local_spark.session

    @contextmanager
    def timed(*arguments: Any, **named: Any) -> Iterator[SparkSession]:
        begun = time.monotonic()
        with real(*arguments, **named) as spark:
            ready = time.monotonic()
            report("session", s=ready - begun)
            yield spark
            report("work", s=time.monotonic() - ready)

    local_spark.session = timed
    if status := main(spec["command"]):
        raise RuntimeError(f"holdfast {spec['command']} ended with status {status}")


def repartition(spec: dict[str, Any], report: Reporter) -> None:
    """Let Spark give the state another number of partitions."""
    spark = _session(spec, report)
    begun = time.monotonic()
    checkpoint = str(Path(spec["folder"], "checkpoint"))
    spark._streamingCheckpointManager.repartition(checkpoint, spec["partitions"])
    report("work", s=time.monotonic() - begun)
    spark.stop()


def _session(spec: dict[str, Any], report: Reporter) -> SparkSession:
    begun = time.monotonic()
    spark = start_session(
        provider=spec["provider"],
        partitions=spec["partitions"],
        driver_memory=spec["driver_memory"],
    )
    report("session", s=time.monotonic() - begun)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the step."""
    {"batch": batch, "command": command, "repartition": repartition}[spec["step"]](spec, report)
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
