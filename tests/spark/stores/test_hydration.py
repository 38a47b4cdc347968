"""Stores with much state are open before it is in memory: it comes there beside the batches.

A batch goes around damage that it comes upon.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from support.spark.counted_texts import VALUE_BYTES, CountedTexts
from support.spark.queries import STATE, settings

KEYS = 4_000
ALL_BYTES = KEYS * VALUE_BYTES

#: Not short of memory, and not with so much room that state comes there by itself.
JUST_FITS = {STATE + "holdfast.targetMemoryBytes": str(ALL_BYTES * 9 // 8)}
AMPLE = {STATE + "holdfast.targetMemoryBytes": str(8 * ALL_BYTES)}

WANTED = {"spark.sql.shuffle.partitions": "1", STATE + "minDeltasForSnapshot": "1"}


def begun(spark: SparkSession, folder: Path) -> CountedTexts:
    """A query that has stopped, with all keys in a run."""
    query = CountedTexts(spark, folder)
    assert query.feed(range(KEYS)) == dict.fromkeys(range(KEYS), 1)
    query.feed_until_merged()
    assert query.operator()["memoryUsedBytes"] > ALL_BYTES
    query.stop()
    return query


def test_state_comes_into_memory_beside_batches_that_do_not_need_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with settings(spark, WANTED):
        query = begun(spark, tmp_path)
        with settings(spark, JUST_FITS):
            query.start()
            assert query.feed(range(7, 9)) == {7: 2, 8: 2}
            assert query.operator()["memoryUsedBytes"] < ALL_BYTES // 4
            assert query.operator()["numRowsTotal"] == KEYS
            assert query.operator()["customMetrics"]["holdfastColdReads"] > 0
            query.stop()
        with settings(spark, AMPLE):
            query.start()
            deadline = time.monotonic() + 120
            while query.feed(range(1)) and query.operator()["memoryUsedBytes"] < ALL_BYTES:
                assert time.monotonic() < deadline
            # Nothing is read any more, and the counts go on.
            assert query.feed(range(9, KEYS)) == dict.fromkeys(range(9, KEYS), 2)
            assert query.operator()["customMetrics"]["holdfastColdReads"] == 0
            query.stop()


def test_a_batch_goes_around_damage_that_it_comes_upon(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, WANTED | JUST_FITS):
        query = begun(spark, tmp_path)
        run, _ = query.runs()[0]
        path = run.path(query.checkpoint)
        data = bytearray(path.read_bytes())
        # Entries, but neither the head of the run nor what is behind the entries.
        for place in range(run.offset + 1_000, run.offset + run.len // 2, 500):
            data[place] ^= 0x10
        path.write_bytes(data)
        query.start()
        assert query.feed(range(1, KEYS)) == dict.fromkeys(range(1, KEYS), 2)
        assert query.operator()["customMetrics"]["holdfastRebuilds"] == 1
        # What follows builds on sound segments only.
        assert query.feed(range(1, KEYS)) == dict.fromkeys(range(1, KEYS), 3)
        query.stop()
        query.start()
        assert query.feed(range(1, KEYS)) == dict.fromkeys(range(1, KEYS), 4)
        assert query.operator()["customMetrics"]["holdfastRebuilds"] == 0
        query.stop()
