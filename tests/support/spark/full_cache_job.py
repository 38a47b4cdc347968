"""A job whose local cache is on a disk that becomes full.

Run as a program, it prints as one line of JSON the bytes in the executor's local cache before that
and after, and the rows of the query's last batch. Its log goes to the file ``log`` in its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import (
    EVICTING,
    Batches,
    builder,
    configured,
    drain,
    settings,
    source,
    write_batch,
)

KEYS = 2000
VALUE_BYTES = 1000


def batch(folder: Path, number: int) -> None:
    noise = random.Random(number)  # noqa: S311
    values = [noise.randbytes(VALUE_BYTES // 2).hex() for _ in range(KEYS)]
    write_batch(folder, number, [{"key": key, "value": value} for key, value in enumerate(values)])


def newest(spark: SparkSession, folder: Path, checkpoint: str) -> list[tuple[Any, ...]]:
    """Keeps the last value of each key; returns the output of the newest batch."""
    rows: Batches = {}
    kept = source(spark, folder).groupBy("key").agg(F.last("value").alias("value"))
    drain(kept, checkpoint=checkpoint, mode="update", into=rows)
    return rows[max(rows)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--disk", type=Path, required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    with (args.folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 2)
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    spark = configured(session, args.conf).getOrCreate()
    native: Any = spark._jvm.io.holdfast.spark.Native  # type: ignore[union-attr]
    folder = args.folder / "input"
    folder.mkdir()
    with settings(spark, EVICTING):
        batch(folder, 0)
        newest(spark, folder, args.checkpoint)
        before = native.localCache()[0]
        # Spark's local folder itself must not be on the full disk.
        native.keepLocally(str(args.disk), 64 << 20)
        for number in (1, 2):
            batch(folder, number)
            rows = newest(spark, folder, args.checkpoint)
    print(json.dumps({"before": before, "after": native.localCache()[0], "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main()
