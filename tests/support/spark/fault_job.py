"""A streaming job that the fault tests stop, kill, damage and restart. Run as a program.

It counts and sums by key, one input file per batch, and writes the rows of batch N to
``output/N.json``. With ``--text-bytes`` its state has a large text for each key, too. It continues
until ``stop`` appears in the control folder or the query fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import STATE, builder, source

GIVE_UP_SECONDS = 300
#: Digits of a number in a text.
DIGITS = 8
MAPPERS = ["none", "pause", "fail-first", "slow-first"]
Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def wait_for(path: Path) -> None:
    """Waits for a file, but not for ever, so that no process remains."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(f"the test did not make {path}")
        time.sleep(0.02)


def pause(control: Path, point: str, batch: int) -> None:
    """The protocol of fault_points.c for points in Python; the number is the batch to stop in."""
    armed = control / f"arm.{point}"
    try:
        if armed.read_text().split() != ["stop", str(batch)]:
            return
        armed.rename(control / f"claimed.{point}")
    except FileNotFoundError:
        return
    staged = control / f"staged.{point}"
    staged.write_text(f"{os.getpid()}\n")
    staged.rename(control / f"reached.{point}")
    wait_for(control / f"go.{point}")


def mapper(kind: str, control: Path) -> Mapper:
    """The action of partition 1 once its rows are through, so its state is committed."""

    def map_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 1:
            return
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        first = context.attemptNumber() == 0
        if kind == "pause":
            pause(control, "task", batch)
        elif kind == "fail-first" and first:
            raise RuntimeError(f"the first attempt of batch {batch} fails")
        elif kind == "slow-first" and batch == 2:
            duplicate = control / "duplicate"
            if first:
                wait_for(duplicate)
            else:
                duplicate.touch()

    return map_rows


def publisher(folder: Path) -> Callable[[DataFrame, int], None]:
    """Writes the rows of each batch; a batch that is repeated must have the same rows."""

    def publish(batch: DataFrame, batch_id: int) -> None:
        rows = {row["key"]: list(row[1:]) for row in batch.collect()}
        text = json.dumps(rows, sort_keys=True)
        final = folder / "output" / f"{batch_id}.json"
        if final.exists() and final.read_text() != text:
            raise RuntimeError(f"batch {batch_id} has other rows when it is replayed")
        staged = final.with_suffix(".staged")
        staged.write_text(text)
        staged.rename(final)
        pause(folder / "control", "publish", batch_id)

    return publish


def text_of(value: Column, text_bytes: int) -> Column:
    """The size of the value; text follows its first digits."""
    return F.repeat(F.lpad(value.cast("string"), DIGITS, "0"), text_bytes // DIGITS)


def counted_by_key(events: DataFrame, text_bytes: int) -> DataFrame:
    """Keys with count and sum of their values, and the largest text; null for a wrong text."""
    counts = [F.count("*").alias("n"), F.sum("value").alias("s")]
    if not text_bytes:
        return events.groupBy("key").agg(*counts)
    text = F.max(text_of(F.col("value"), text_bytes)).alias("text")
    counted = events.groupBy("key").agg(*counts, text)
    value = F.substring("text", 1, DIGITS).cast("int")
    sound = F.col("text") == text_of(value, text_bytes)
    return counted.select("key", "n", "s", F.when(sound, value).alias("largest"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", help="default: the folder's own")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--mapper", choices=MAPPERS, default="none")
    parser.add_argument(
        "--stages", action="store_true", help="one more shuffle, with tasks on every executor"
    )
    parser.add_argument(
        "--complete", action="store_true", help="every batch emits all keys, whatever its input"
    )
    parser.add_argument(
        "--text-bytes", type=int, default=0, help="of a text by key that the state has, too"
    )
    args = parser.parse_args()
    control = args.folder / "control"

    settings = {
        "spark.executor.memory": "1g",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # A clean-up after every tenth batch, which faults.py needs.
        "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "5",
        STATE + "maintenanceInterval": "200ms",
        STATE + "minDeltasForSnapshot": "2",
        # A few segments fill a file, so that files are often sealed.
        STATE + "holdfast.maxFileBytes": "2000",
    } | dict(setting.split("=", 1) for setting in args.conf)
    session = holdfast.configure(builder(args.master, args.folder / "warehouse"))
    for key, value in settings.items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    events = source(spark, args.folder / "input")
    if args.stages:
        events = events.repartition(2, "value")
    counted = counted_by_key(events, args.text_bytes)
    if args.mapper != "none":
        counted = counted.mapInArrow(mapper(args.mapper, control), counted.schema)
    query = (
        counted.writeStream.outputMode("complete" if args.complete else "update")
        .option("checkpointLocation", args.checkpoint or str(args.folder / "checkpoint"))
        .foreachBatch(publisher(args.folder))
        .start()
    )
    with (args.folder / "progress.jsonl").open("a", buffering=1) as log:
        follow(query, control / "stop", log)
    spark.stop()


def follow(query: Any, stop: Path, log: Any) -> None:
    """Logs the state metrics of every batch, until the end."""
    last = -1
    while not query.awaitTermination(0.1):
        progress = query.lastProgress
        if progress and progress["batchId"] > last and progress["stateOperators"]:
            last = progress["batchId"]
            log.write(json.dumps({"batch": last, **progress["stateOperators"][0]}) + "\n")
        if stop.exists():
            query.stop()


if __name__ == "__main__":
    main()
