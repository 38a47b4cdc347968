"""A driver whose JVM is killed under it. Run as a program; prints the errors of its pipeline.

``--at batch``: while an operator is in the middle of a batch. ``--at idle``: between two batches.
``--at splits``: in a batch of a pipeline that reads files by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import holdfast
from support.regional import pipelines
from support.regional.pipelines import COUNTED, ROWS, RunningCount, rows_of
from support.spark.queries import builder
from support.spark.regional_input import regional_source, write_rows

REGIONS = [f"r{number:02}" for number in range(4)]


class Waiting(RunningCount):
    """Writes its worker's process id, and waits for its end."""

    def __init__(self, workers: Path, *, waits: bool) -> None:
        self.workers = workers
        self.waits = waits

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        (self.workers / str(os.getpid())).touch()
        while self.waits:
            time.sleep(0.1)
        return super().process(batch)


def raised(call: Callable[[], object]) -> dict[str, str]:
    """Type and message of a call's exception."""
    try:
        call()
    except Exception as e:
        return {"type": type(e).__name__, "message": str(e)}
    return {"type": "", "message": ""}


def pipeline(spark: SparkSession, folder: Path, at: str) -> holdfast.RegionalQuery:
    """Start the pipeline that is killed."""
    for batch in range(2):
        write_rows(folder / "in", batch, rows_of(batch, REGIONS))
    if at == "splits":
        source = holdfast.FileSplits(folder / "in", schema=ROWS, regions=2)
        begun = holdfast.regional(source)
    else:
        begun = holdfast.regional(regional_source(spark, folder / "in"), region_by="region")
    return (
        begun.apply(Waiting(folder / "workers", waits=at != "idle"), schema=COUNTED, name="count")
        .write_parquet(folder / "out")
        .start(folder / "ckpt", name="counting")
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--at", choices=("batch", "idle", "splits"), required=True)
    args = parser.parse_args()
    cloudpickle.register_pickle_by_value(pipelines)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    workers: Path = args.folder / "workers"
    workers.mkdir()
    spark = holdfast.configure(builder("local[2]", args.folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jvm: Any = spark.sparkContext._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    query = pipeline(spark, args.folder, args.at)
    if args.at == "idle":
        query.processAllAvailable()
    while not any(workers.iterdir()):
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    said = {"awaitTermination": raised(query.awaitTermination)}
    said["stop"] = raised(query.stop)
    said["processAllAvailable"] = raised(query.processAllAvailable)
    said["stop_with_savepoint"] = raised(lambda: query.stop_with_savepoint(args.folder / "saved"))
    said["status"] = query.status()
    (args.folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
