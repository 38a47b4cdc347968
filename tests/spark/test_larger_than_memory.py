"""State that does not fit the limit of memory: it stays in base images, and rows are as always."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from support.spark.queries import STATE, settings, source, write_batch
from support.spark.state_files import commit_ids, lineage

LIMIT_BYTES = 4 << 20
KEYS = 300
VALUE_BYTES = 4096

#: Tags and a value of a segment's head.
CREATED, KIND, RUN = 2, 3, 5

WANTED = {
    "spark.sql.shuffle.partitions": "1",
    STATE + "minDeltasForSnapshot": "1",
    STATE + "holdfast.maxMemoryBytes": str(LIMIT_BYTES),
}


def text(key: int) -> str:
    return f"{key:08d}" * (VALUE_BYTES // 8)


class Query:
    """Counts and largest texts by key, one batch at a time."""

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
        # As maintenance does a little later: until then the stores of an ended query take memory.
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()

    def feed(self, keys: range) -> dict[int, int]:
        """Counts of the keys, after checking their texts, and that memory was kept to."""
        self.rows.clear()
        write_batch(self._input, self.batches, [{"key": k, "text": text(k)} for k in keys])
        self.batches += 1
        if self._query is None:
            self.start()
        self._query.processAllAvailable()
        assert all(row["text"] == text(row["key"]) for row in self.rows)
        (operator,) = self._query.lastProgress["stateOperators"]
        assert operator["memoryUsedBytes"] <= LIMIT_BYTES
        return {row["key"]: row["count"] for row in self.rows}

    def feed_until_merged(self) -> None:
        """Feeds one key until commits build on runs that have all others."""
        wanted, deadline = self.batches, time.monotonic() + 120
        while True:
            self.feed(range(1))
            (store_id,) = commit_ids(self.checkpoint, self.batches - 1)["0"][0]
            for segment in lineage(self.checkpoint, store_id):
                head = dict(segment.head(self.checkpoint))
                created = head[CREATED]
                assert isinstance(created, int)
                if head[KIND] == RUN and created >= wanted:
                    return
            assert time.monotonic() < deadline

    def rows_total(self) -> int:
        return int(self._query.lastProgress["stateOperators"][0]["numRowsTotal"])


@pytest.mark.parametrize(
    "batches", [pytest.param(4, id="some"), pytest.param(40, id="many", marks=pytest.mark.full)]
)
def test_state_larger_than_the_limit_is_counted_read_and_loaded(
    spark: SparkSession, tmp_path: Path, batches: int
) -> None:
    query = Query(spark, tmp_path)
    total = batches * KEYS
    assert total * VALUE_BYTES > LIMIT_BYTES
    with settings(spark, WANTED):
        for batch in range(batches):
            keys = range(batch * KEYS, (batch + 1) * KEYS)
            assert query.feed(keys) == dict.fromkeys(keys, 1)
            assert query.rows_total() == keys.stop
            query.feed_until_merged()
        # Keys that nothing has touched for long, after a restart as well.
        old = range(1, total, total // 200)
        for count in (2, 3):
            assert query.feed(old) == dict.fromkeys(old, count)
            assert query.rows_total() == total
            query.stop()
            query.start()
        query.stop()
        state = spark.read.format("statestore").load(str(query.checkpoint))
        found = state.select("key.key", "value.count").collect()
    counts = {row["key"]: row["count"] for row in found}
    assert len(found) == total
    assert all(counts[key] == (3 if key in old else 1) for key in range(1, total))
