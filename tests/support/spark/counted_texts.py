"""A query whose state is a large text for each key: batch by batch, with its expected output."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from support.spark.queries import source, unload, write_batch
from support.spark.state_files import Segment, commit_ids, lineage

VALUE_BYTES = 4096

#: Tags and a value of a segment's head.
CREATED, KIND, RUN = 2, 3, 5


def text(key: int) -> str:
    return f"{key:08d}" * (VALUE_BYTES // 8)


class CountedTexts:
    """Counts and largest texts by key, one batch at a time, on one partition."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._input = folder / "input"
        self._input.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.batches = 0
        self.rows: list[Row] = []
        self._query: Any = None

    def start(self) -> None:
        grouped = source(self._spark, self._input).groupBy("key")
        counted = grouped.agg(sf.count("*").alias("count"), sf.max("text").alias("text"))
        self._query = (
            counted.writeStream.outputMode("update")
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(lambda batch, _: self.rows.extend(batch.collect()))
            .start()
        )

    def stop(self) -> None:
        self._query.stop()
        unload(self._spark)

    def feed(self, keys: range) -> dict[int, int]:
        """Counts of the keys, after checking their texts."""
        self.rows.clear()
        write_batch(self._input, self.batches, [{"key": k, "text": text(k)} for k in keys])
        self.batches += 1
        if self._query is None:
            self.start()
        self._query.processAllAvailable()
        assert all(row["text"] == text(row["key"]) for row in self.rows)
        return {row["key"]: row["count"] for row in self.rows}

    def operator(self) -> dict[str, Any]:
        """The figures of state in the last batch."""
        (operator,) = self._query.lastProgress["stateOperators"]
        return dict(operator)

    def runs(self) -> list[tuple[Segment, int]]:
        """Runs that the last commit builds on, each with its version."""
        (store_id,) = commit_ids(self.checkpoint, self.batches - 1)["0"][0]
        found = []
        for segment in lineage(self.checkpoint, store_id):
            head = dict(segment.head(self.checkpoint))
            created = head[CREATED]
            assert isinstance(created, int)
            if head[KIND] == RUN:
                found.append((segment, created))
        return found

    def feed_until_merged(self) -> None:
        """Feeds one key until commits build on runs with all others."""
        wanted, deadline = self.batches, time.monotonic() + 120
        while True:
            self.feed(range(1))
            if any(created >= wanted for _, created in self.runs()):
                return
            assert time.monotonic() < deadline
