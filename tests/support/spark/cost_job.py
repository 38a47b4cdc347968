"""A job that counts the requests of batches by provider, on a server of the S3 protocol.

Run as a program, it prints a line of JSON for each variant: its name, its batches, and by kind the
requests of these batches together. It writes the progress of each variant next to its input, as
``progress.jsonl``.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.object_stores import requests_served
from support.spark.queries import (
    PROVIDERS,
    STATE,
    builder,
    configured,
    settings,
    source,
    write_batch,
)

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHANGELOG = f"{STATE}rocksdb.changelogCheckpointing.enabled"
#: By variant: provider, version of the checkpoint format, and changelogs or not.
VARIANTS = {
    "hdfs": ("hdfs", "1", "false"),
    "rocksdb": ("rocksdb", "1", "false"),
    "rocksdb-2": ("rocksdb", "2", "false"),
    "changelog": ("rocksdb", "1", "true"),
    "changelog-2": ("rocksdb", "2", "true"),
    "holdfast": ("holdfast", "2", "false"),
}
#: Batches before requests are counted, and during the count.
FIRST, COUNTED = 2, 4


def aggregated(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"))


def joined(rows: DataFrame) -> DataFrame:
    return rows.join(rows.withColumnRenamed("key", "other"), F.expr("key = other"))


QUERIES = {"aggregation": aggregated, "join": joined}


def measure(
    spark: SparkSession,
    variant: str,
    query: str,
    checkpoint: str,
    folder: Path,
    requests: Callable[[], Counter[str]],
) -> None:
    """Run a query and print the requests of its later batches."""
    folder.mkdir(parents=True)

    def feed(batch: int) -> None:
        write_batch(folder, batch, [{"key": batch * 1000 + key} for key in range(200)])

    feed(0)
    provider, version, changelog = VARIANTS[variant]
    values = {
        f"{STATE}providerClass": PROVIDERS[provider],
        f"{STATE}checkpointFormatVersion": version,
        CHANGELOG: changelog,
    }
    ours = spark.conf.get(FILE_MANAGER)
    with settings(spark, values):
        if provider != "holdfast":
            spark.conf.unset(FILE_MANAGER)
        writer = QUERIES[query](source(spark, folder)).writeStream.format("noop")
        mode = "append" if query == "join" else "update"
        running = writer.outputMode(mode).option("checkpointLocation", checkpoint).start()
        for batch in range(1, FIRST + 1):
            running.processAllAvailable()
            feed(batch)
        running.processAllAvailable()
        before = requests()
        for batch in range(FIRST + 1, FIRST + 1 + COUNTED):
            feed(batch)
            running.processAllAvailable()
        counted = requests()
        counted.subtract(before)
        progress = [event.json for event in running.recentProgress]
        running.stop()
        spark.conf.set(FILE_MANAGER, ours)
    (folder / "progress.jsonl").write_text(
        "".join(json.dumps(json.loads(event)) + "\n" for event in progress)
    )
    print(json.dumps({"variant": variant, "batches": COUNTED, "requests": Counter(+counted)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    parser.add_argument("--query", choices=QUERIES, required=True)
    parser.add_argument("--variants", nargs="+", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for variant in args.variants:
        folder = args.folder / variant
        requests = partial(requests_served, args.metrics_port)
        measure(spark, variant, args.query, f"{args.root}/{variant}", folder, requests)
    spark.stop()


if __name__ == "__main__":
    main()
