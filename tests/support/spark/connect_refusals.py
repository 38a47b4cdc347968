"""``connect_refusals.py URL`` prints Holdfast's errors in a client of Spark Connect, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import COUNTED, RunningCount

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def outcome(call: Callable[[], Any]) -> list[str]:
    """The type and the text of a call's exception."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def main() -> None:
    builder = SparkSession.builder.remote(sys.argv[1])
    said = {"configure, a builder": outcome(lambda: holdfast.configure(builder))}
    spark = builder.getOrCreate()
    stream = spark.readStream.format("rate").load()
    splits = holdfast.regional(holdfast.FileSplits(".", schema="line string")).apply(
        RunningCount(), schema=COUNTED
    )
    said |= {
        "configure, the next builder": outcome(lambda: holdfast.configure(SparkSession.builder)),
        "configure, a session": outcome(lambda: holdfast.configure(spark)),
        "regional": outcome(lambda: holdfast.regional(stream, region_by="value")),
        "splits": outcome(lambda: splits.write_parquet("out").start("checkpoint")),
        "check": outcome(lambda: holdfast.check(spark)),
    }
    spark.conf.set(PROVIDER, ROCKSDB)
    said["check, another provider"] = outcome(lambda: holdfast.check(spark))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
