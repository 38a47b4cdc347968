"""State that does not fit the limit of memory: it stays in base images, and rows are as always."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.spark.counted_texts import VALUE_BYTES, CountedTexts
from support.spark.queries import STATE, settings

LIMIT_BYTES = 4 << 20
KEYS = 300

WANTED = {
    "spark.sql.shuffle.partitions": "1",
    STATE + "minDeltasForSnapshot": "1",
    STATE + "holdfast.maxMemoryBytes": str(LIMIT_BYTES),
}


@pytest.fixture(autouse=True)
def limited_here_only(spark: SparkSession) -> Iterator[None]:
    """The limit of the last query holds for the process, so for tables of other tests, too."""
    yield
    jvm: Any = spark._jvm
    spark_plugin = jvm.io.holdfast.spark
    executor = spark_plugin.executor.HoldfastExecutor.running()
    executor.stores().limitMemory(spark_plugin.HoldfastConf({}))


class Limited(CountedTexts):
    """Keeps to its memory in every batch."""

    def feed(self, keys: range) -> dict[int, int]:
        counts = super().feed(keys)
        assert self.operator()["memoryUsedBytes"] <= LIMIT_BYTES
        return counts


@pytest.mark.parametrize(
    "batches", [pytest.param(4, id="some"), pytest.param(40, id="many", marks=pytest.mark.full)]
)
def test_state_larger_than_the_limit_is_counted_read_and_loaded(
    spark: SparkSession, tmp_path: Path, batches: int
) -> None:
    query = Limited(spark, tmp_path)
    total = batches * KEYS
    assert total * VALUE_BYTES > LIMIT_BYTES
    with settings(spark, WANTED):
        for batch in range(batches):
            keys = range(batch * KEYS, (batch + 1) * KEYS)
            assert query.feed(keys) == dict.fromkeys(keys, 1)
            assert query.operator()["numRowsTotal"] == keys.stop
            query.feed_until_merged()
        # Keys that nothing has touched for long, after a restart as well.
        old = range(1, total, total // 200)
        for count in (2, 3):
            assert query.feed(old) == dict.fromkeys(old, count)
            assert query.operator()["numRowsTotal"] == total
            query.stop()
            query.start()
        query.stop()
        state = spark.read.format("statestore").load(str(query.checkpoint))
        found = state.select("key.key", "value.count").collect()
    counts = {row["key"]: row["count"] for row in found}
    assert len(found) == total
    assert all(counts[key] == (3 if key in old else 1) for key in range(1, total))


def test_a_batch_larger_than_the_limit_is_counted_read_and_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Limited(spark, tmp_path)
    keys = range(10 * KEYS)
    assert len(keys) * VALUE_BYTES > 2 * LIMIT_BYTES
    with settings(spark, WANTED):
        for count in (1, 2):
            assert query.feed(keys) == dict.fromkeys(keys, count)
            assert query.operator()["numRowsTotal"] == len(keys)
            query.stop()
            query.start()
        query.stop()
        state = spark.read.format("statestore").load(str(query.checkpoint))
        found = state.select("key.key", "value.count").collect()
    assert {row["key"]: row["count"] for row in found} == dict.fromkeys(keys, 2)
