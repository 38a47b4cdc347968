"""Input of regional pipelines on Spark: two files, so two tasks, for each micro-batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from support.regional.pipelines import ROWS, Row
from support.spark.queries import FIRST_FILE_TIME

TASKS = 2


def write_rows(folder: Path, batch: int, rows: Sequence[Row], *, split: bool = False) -> None:
    """Add the files of one micro-batch.

    They appear at the same moment, so that no batch finds one without the other; existing files are
    kept. Every region is in one of the two files; with `split`, each is in both.
    """
    files = folder / f"batch-{batch:03}"
    if files.exists():
        return
    staged = folder / f".{files.name}"
    staged.mkdir(parents=True)
    regions = sorted({region for region, _, _ in rows})
    for task in range(TASKS):
        part = [
            row
            for number, row in enumerate(rows)
            if (number // len(regions) if split else regions.index(row[0])) % TASKS == task
        ]
        columns = list(zip(*part, strict=True)) if part else [[], [], []]
        arrays = [pa.array(list(c), field.type) for c, field in zip(columns, ROWS, strict=True)]
        file = staged / f"{task}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=ROWS), file)
        # The source orders files by modification time: make the order part of the input.
        os.utime(file, (FIRST_FILE_TIME + batch, FIRST_FILE_TIME + batch))
    staged.rename(files)


def regional_source(spark: SparkSession, folder: Path | str) -> DataFrame:
    """The files as a stream."""
    return (
        spark.readStream.schema("region string, id long, key long")
        .option("maxFilesPerTrigger", TASKS)
        .option("recursiveFileLookup", True)
        .parquet(str(folder))
    )
