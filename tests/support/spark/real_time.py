"""Queries in Real-Time Mode: their input in a Kafka topic, and the rows that they put out.

In this mode a query handles each row by itself, so its rows follow from its input alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from support.regional.kafka_pipeline import PARTITIONS, new_topic
from support.spark.java_side import instance

KEYS = 7
#: Seconds of event time in a window. A row is a second after the one before, from 1 on: 0 is late.
WINDOW = 50
Out = tuple[Any, ...]


def rows(numbers: Iterable[int]) -> list[tuple[str, int]]:
    """Keys and values. The rows of a key are in one partition, so they have an order."""
    return [(f"k{number % KEYS}", number) for number in numbers]


def send(servers: str, topic: str, numbers: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in rows(numbers):
        producer.produce(topic, key=key, value=str(value))
    assert producer.flush(60) == 0


def received(servers: str, topic: str) -> list[Out]:
    """All rows of an output topic."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "r", "enable.auto.commit": False}
    )
    found: list[Out] = []
    for partition in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        consumer.assign([TopicPartition(topic, partition, 0)])
        messages = 0
        while messages < end:
            message = consumer.poll(60)
            assert message is not None, "the broker does not answer"
            assert message.error() is None, message.error()
            found.append(tuple(json.loads(message.value())))
            messages = message.offset() + 1
    consumer.close()
    return found


def new_topics(servers: str, name: str) -> tuple[str, str]:
    """Topics for the input and the output of a query."""
    topics = (f"{name}-in", f"{name}-out")
    for topic in topics:
        new_topic(servers, topic)
    return topics


def _source(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = F.col("value").cast("string").cast("long")
    return records.select(F.col("key").cast("string").alias("key"), value.alias("value")).select(
        "key", "value", F.timestamp_seconds(F.col("value") + 1).alias("at")
    )


def _written(found: DataFrame, *columns: str | Column) -> DataFrame:
    texts = [(F.col(c) if isinstance(c, str) else c).cast("string") for c in columns]
    return found.select(F.to_json(F.array(*texts)).alias("value"))


def counts(events: DataFrame) -> DataFrame:
    found = events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return _written(found, "key", "n", "total")


def windows(events: DataFrame) -> DataFrame:
    window = F.window("at", f"{WINDOW} seconds")
    found = events.withWatermark("at", "1 hour").groupBy(window.alias("w"), "key").count()
    return _written(found, "key", F.unix_timestamp("w.start"), "count")


def distinct(events: DataFrame) -> DataFrame:
    """Two rows of a key in turn are the same."""
    pair = F.floor(F.col("value") / (2 * KEYS)).alias("pair")
    return _written(events.select("key", pair).dropDuplicates(["key", "pair"]), "key", "pair")


def totals(events: DataFrame) -> DataFrame:
    """TimersJob.java: ``transformWithState`` of the JVM. None of its timers fires."""
    build = instance(events.sparkSession, "TimersJob")
    late = events.withWatermark("at", "1 hour")
    return _written(DataFrame(build.apply(late._jdf, False), events.sparkSession), "key", "total")


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "counts": counts,
    "windows": windows,
    "distinct": distinct,
    "totals": totals,
}


def query(spark: SparkSession, servers: str, topic: str, name: str) -> DataFrame:
    return QUERIES[name](_source(spark, servers, topic))


def expected(name: str, numbers: Iterable[int]) -> list[Out]:
    """The rows of a query that handles each row by itself, sorted."""
    seen: dict[Any, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    found: list[Out] = []
    for key, value in rows(numbers):
        sums[key] += value
        start = (value + 1) // WINDOW * WINDOW
        group = {"windows": (key, start), "distinct": (key, value // (2 * KEYS))}.get(name, key)
        seen[group] += 1
        if name == "counts":
            found.append((key, str(seen[group]), str(sums[key])))
        elif name == "windows":
            found.append((key, str(start), str(seen[group])))
        elif name == "totals":
            found.append((key, str(sums[key])))
        elif seen[group] == 1:
            found.append((key, str(value // (2 * KEYS))))
    return sorted(found)
