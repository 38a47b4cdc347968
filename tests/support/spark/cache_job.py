"""A job whose queries on an object store run before and after state has left memory.

Run as a program, it prints as one line of JSON the bytes in the executor's local cache after each,
and once its session has ended.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import EVICTING, Batches, builder, drain, settings, source


def count(spark: SparkSession, folder: Path, checkpoint: str) -> int:
    """Counts by key; returns the bytes in the local cache then."""
    rows: Batches = {}
    counted = source(spark, folder).groupBy("key").agg(F.count("*").alias("n"))
    drain(counted, checkpoint=checkpoint, mode="update", into=rows)
    # As maintenance does a little later: where memory is short, the stores of an ended query write.
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    if sorted(rows) != [0, 1]:
        raise RuntimeError(f"expected batches 0 and 1, found {sorted(rows)}")
    return cached(spark._jvm)


def cached(jvm: Any) -> int:
    """Bytes in the local cache."""
    return int(jvm.io.holdfast.spark.Native.localCache()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    for setting in args.conf:
        key, _, value = setting.partition("=")
        session = session.config(key, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    folder = args.folder / "input"
    before = count(spark, folder, f"{args.checkpoints}/before")
    with settings(spark, EVICTING):
        # On the local disk, where no cache is needed.
        local = count(spark, folder, str(args.folder / "local"))
    after = count(spark, folder, f"{args.checkpoints}/after")
    jvm = spark._jvm
    spark.stop()  # of the JVM, too, another session may begin
    print(json.dumps({"before": before, "local": local, "after": after, "stopped": cached(jvm)}))


if __name__ == "__main__":
    main()
