"""A streaming job that the crash tests kill. Run as a program.

It stops at one named place (``--block``): it writes ``blocked`` into the control folder and waits,
so that a test kills it exactly there and never by timing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import builder, configured, source

BLOCK_SECONDS = 240


def wait_to_be_killed(control: Path) -> None:
    """Reports its place and waits; ends after a time, so that no process remains."""
    (control / "blocked").touch()
    deadline = time.monotonic() + BLOCK_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.05)
    sys.exit("the test did not kill this job")


def wait_for_go(control: Path) -> None:
    """Reports its place and waits for the test, once."""
    if (control / "go").exists():
        return
    (control / "blocked").touch()
    deadline = time.monotonic() + BLOCK_SECONDS
    while not (control / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--block",
        choices=["none", "tasks", "before-commit", "before-commit-once", "between", "task-once"],
        default="none",
        help="tasks: partition 1 of batch --at never ends. before-commit: all its tasks are done, "
        "its entry in the commit log is not written. between: all input is processed. "
        "task-once, before-commit-once: as tasks and before-commit, but the job goes on once 'go' "
        "appears in the control folder.",
    )
    parser.add_argument("--checkpoint", help="default: the folder's own")
    parser.add_argument("--conf", action="append", default=[], help="a setting, key=value")
    parser.add_argument("--at", type=int, default=2, help="batch to stop in")
    args = parser.parse_args()
    control = args.folder / "control"
    control.mkdir(parents=True, exist_ok=True)
    output = args.folder / "output"

    settings = (
        builder(args.master, args.folder / "warehouse")
        .config("spark.executor.memory", "1g")
        .config("spark.task.maxFailures", "4")
    )
    spark = holdfast.configure(configured(settings, args.conf)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def slow_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        # The rows are through, so this partition's store is committed, unlike others perhaps.
        batch = context.getLocalProperty("streaming.sql.batchId")
        if context.partitionId() == 1 and batch == str(at):
            if block == "tasks":
                wait_to_be_killed(control)
            if block == "task-once":
                wait_for_go(control)

    def publish(batch: DataFrame, batch_id: int) -> None:
        staged = output / f".batch-{batch_id}"
        batch.write.mode("overwrite").parquet(str(staged))
        final = output / f"batch={batch_id}"
        shutil.rmtree(final, ignore_errors=True)
        staged.rename(final)
        if block == "before-commit" and batch_id == at:
            wait_to_be_killed(control)
        if block == "before-commit-once" and batch_id == at:
            wait_for_go(control)

    block, at = args.block, args.at
    counted = (
        source(spark, args.input)
        .groupBy("key")
        .agg(F.count("*").alias("n"), F.sum("value").alias("s"))
    )
    query = (
        counted.mapInArrow(slow_partition, counted.schema)
        .writeStream.outputMode("update")
        .option("checkpointLocation", args.checkpoint or str(args.folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(publish)
        .start()
    )
    query.awaitTermination()
    if block == "between":
        wait_to_be_killed(control)
    spark.stop()


if __name__ == "__main__":
    main()
