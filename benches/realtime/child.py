"""One query in Real-Time Mode that is fed at an even rate: ``child.py SPEC FD``."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import functions as sf

from harness.process import Reporter, report_to_parent
from harness.providers import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_KEYS = 1_000
_ARRIVES_WITHIN_S = 60.0
#: A batch begins within this time of the longest silence that its begin causes.
_AROUND_S = 2.5


class Arrivals:
    """Receives the rows of a topic in a thread of its own: when they were sent, and arrived."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": topic, "fetch.wait.max.ms": 5}
        )
        self._consumer.assign([TopicPartition(topic, part, 0) for part in range(partitions)])
        self.rows: list[tuple[float, float]] = []
        self.counts: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                arrived = time.time()
                row = json.loads(message.value())
                self.rows.append((row["sent"], arrived))
                self.counts[row["key"]] = max(self.counts[row["key"]], row["n"])

    def wait_for(self, rows: int) -> None:
        """Wait until so many rows have arrived."""
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        while len(self.rows) < rows:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(self.rows)} of {rows} rows arrived")
            time.sleep(0.01)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Feed the query, and report percentiles of latency and the gaps between its batches."""
    spark = start_session(
        provider=spec["provider"] if spec["stateful"] else "rocksdb-changelog",
        partitions=spec["partitions"],
        cores=spec["cores"],
        driver_memory=spec["driver_memory"],
        extra=spec["settings"],
    )
    query = start(spark, spec)
    arrivals = Arrivals(spec["servers"], spec["write"], spec["source_partitions"])
    producer = Producer({"bootstrap.servers": spec["servers"], "linger.ms": 0})
    numbers = itertools.count()
    keys: Counter[str] = Counter()

    def send(rows: int) -> None:
        begin, rate = time.monotonic(), spec["rows_per_s"]
        for row in range(rows):
            time.sleep(max(0.0, begin + row / rate - time.monotonic()))
            key = f"key {next(numbers) * 7919 % _KEYS}"
            keys[key] += 1
            producer.produce(spec["read"], key=key, value=repr(time.time()))
            producer.poll(0)
        producer.flush()

    batch_rows = spec["rows_per_s"] * spec["batch_s"]
    send(1)
    arrivals.wait_for(1)
    send(spec["warm_up"] * batch_rows)
    measured_from = time.time()
    send(spec["batches"] * batch_rows)
    arrivals.wait_for(keys.total())
    arrivals.close()
    batches = [json.loads(one.json) for one in query.recentProgress]
    query.stop()
    spark.stop()
    if spec["stateful"] and arrivals.counts != keys:
        raise RuntimeError("a count is not the number of rows that were sent")
    measured = [(sent, arrived) for sent, arrived in arrivals.rows if sent >= measured_from]
    begins = [datetime.fromisoformat(one["timestamp"]).timestamp() for one in batches]
    latencies = sorted(1000 * (arrived - sent) for sent, arrived in measured)
    times = [one["durationMs"] for one in batches if one["numInputRows"]][spec["warm_up"] :]
    report(
        "run",
        **{f"p{part}": latencies[part * len(latencies) // 100] for part in (50, 90, 99)},
        gap=median(gaps([arrived for _, arrived in measured], begins)),
        **{name: median(one.get(name, 0) for one in times) for name in spec["parts"]},
    )
    report("done")


def gaps(arrivals: list[float], begins: list[float]) -> list[float]:
    """Return the longest silence around the begin of each batch, in ms."""
    times = sorted(arrivals)
    silences = list(itertools.pairwise(times))
    return [
        max(
            1000 * (after - before)
            for before, after in silences
            if begin - _AROUND_S < after < begin + _AROUND_S
        )
        for begin in begins
        if times[0] + _AROUND_S < begin < times[-1] - _AROUND_S
    ]


def start(spark: SparkSession, spec: dict[str, Any]) -> StreamingQuery:
    """Count rows by key, or pass them on without state."""
    kafka = {"kafka.bootstrap.servers": spec["servers"]}
    rows = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe=spec["read"], startingOffsets="earliest")
        .load()
        .select(
            sf.col("key").cast("string").alias("key"),
            sf.col("value").cast("string").cast("double").alias("sent"),
        )
    )
    if spec["stateful"]:
        found = rows.groupBy("key").agg(sf.count("*").alias("n"), sf.max("sent").alias("sent"))
    else:
        found = rows.select("key", sf.lit(0).alias("n"), "sent")
    return (
        found.select(sf.to_json(sf.struct("key", "n", "sent")).alias("value"))
        .writeStream.format("kafka")
        .options(**kafka, topic=spec["write"], checkpointLocation=spec["checkpoint"])
        .outputMode("update")
        .trigger(realTime=f"{spec['batch_s']} seconds")
        .start()
    )


if __name__ == "__main__":
    report_to_parent(run, dict)
