"""Executors of one core in JVMs of their own, and small batches for a task on each of two."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from harness.providers import start_session

TASKS = 2

_ROWS = pa.schema([("region", pa.string()), ("id", pa.int64())])
_ROWS_DDL = "region string, id long"


def start_spark(*, executors: int, driver_memory: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark with Holdfast.

    Parameters
    ----------
    executors
        One is in the driver's JVM and has two cores; of several each has one core, and a JVM.
    """
    cluster = {
        "spark.master": f"local-cluster[{executors},1,2048]",
        "spark.executor.memory": "1g",
        # No batch begins before all executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    spark = start_session(
        provider="holdfast",
        partitions=TASKS,
        driver_memory=driver_memory,
        extra={**(cluster if executors > 1 else {}), **settings},
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_batches(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the stream of what `write_batch` puts into a folder, a batch at a time."""
    stream = spark.readStream.schema(_ROWS_DDL).option("maxFilesPerTrigger", TASKS)
    return stream.parquet(f"{folder}/*")


def write_batch(folder: Path, number: int, *, regions: int, rows_of_region: int) -> None:
    """Let the rows of a batch arrive: a file for each task, whole regions in each."""
    staged = folder.with_name(f"{folder.name}-staged") / f"{number:04}"
    staged.mkdir(parents=True)
    for task in range(TASKS):
        names = [f"region-{region:06}" for region in range(task, regions, TASKS)]
        rows = len(names) * rows_of_region
        column = pa.array(names).take(pa.array([row // rows_of_region for row in range(rows)]))
        table = pa.Table.from_arrays([column, pa.array(range(rows), pa.int64())], schema=_ROWS)
        pq.write_table(table, staged / f"rows-{task}.parquet")
    staged.rename(folder / staged.name)
