"""A query that counts rows by key into a topic, with ``write_kafka_once``. Run as a program.

With ``--kill POINT`` it kills its own process group, JVM included, in batch ``--at``: when rows are
being ``staged``, at a point of the transaction, or when the function has ``returned``, before Spark
commits the batch.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast
from holdfast.regions.sinks.kafka import KafkaTopic
from holdfast.regions.sinks.kafka_client import KafkaTransactions
from support.regional.kafka_job import POINTS as OF_TRANSACTIONS
from support.regional.kafka_job import Dying
from support.spark.queries import builder, source

POINTS = ("staged", *OF_TRANSACTIONS[:-1], "returned")


def die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def records(counts: DataFrame) -> DataFrame:
    """A record for each row of counts: its key, and key and count as JSON."""
    key = F.col("key").cast("string")
    return counts.select(
        key.alias("key"), F.to_json(F.array(key, F.col("n").cast("string"))).alias("value")
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--kill", choices=POINTS)
    parser.add_argument("--at", type=int, default=-1, help="batch to die in")
    args = parser.parse_args()
    spark = holdfast.configure(builder("local[2]", args.folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    made, read = KafkaTransactions._made, KafkaTopic._records
    now = -1

    def dying(self: Any, kind: str, settings: dict[str, Any]) -> Any:
        client = made(self, kind, settings)
        if kind != "Producer":
            return client
        return Dying(client, args.kill, is_due=lambda: now == args.at, end=die)

    def read_or_die(*arguments: Any) -> Any:
        if (args.kill, args.at) == ("staged", now):
            die()
        return read(*arguments)

    KafkaTransactions._made = dying  # type: ignore[method-assign]
    KafkaTopic._records = read_or_die  # type: ignore[method-assign]

    def publish(batch: DataFrame, batch_id: int) -> None:
        nonlocal now
        now = batch_id
        with (args.folder / "calls").open("a") as calls:
            calls.write(f"{batch_id}\n")
        holdfast.write_kafka_once(
            batch, batch_id, "out", bootstrap_servers=args.servers, transactional_id="of-query"
        )
        if (args.kill, args.at) == ("returned", batch_id):
            die()

    counts = source(spark, args.folder / "in").groupBy("key").agg(F.count("*").alias("n"))
    query = (
        records(counts)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(args.folder / "ckpt"))
        .trigger(availableNow=True)
        .foreachBatch(publish)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
