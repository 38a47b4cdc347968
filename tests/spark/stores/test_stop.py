"""A query that is stopped while it commits ends without an error, as with Spark's own stores."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark.queries import Batches, drain, settings, source, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.timeout(600)]

KEYS = 500


def wait_for_interrupt(spark: SparkSession) -> None:
    """Wait until the thread of the one query that runs was interrupted."""
    jvm: Any = spark._jvm
    deadline = time.monotonic() + 60
    while True:
        for thread in jvm.java.lang.Thread.getAllStackTraces().keySet():
            if thread.getName().startswith("stream execution thread") and thread.isInterrupted():
                return
        assert time.monotonic() < deadline, "stop() interrupted nobody"
        time.sleep(0.01)


def stopped_in_its_commit(frame: DataFrame, checkpoint: Path) -> Any:
    """A query whose thread is interrupted when a batch has its rows, and is not committed yet."""
    started = threading.Event()
    stops: list[threading.Thread] = []

    def stop(batch: DataFrame, _: int) -> None:
        batch.collect()
        started.wait()
        stops.append(threading.Thread(target=query.stop))
        stops[-1].start()
        wait_for_interrupt(batch.sparkSession)

    query = (
        frame.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(stop)
        .start()
    )
    started.set()
    query.awaitTermination()
    for thread in stops:
        thread.join()
    return query


@pytest.mark.parametrize("partitions", [1, pytest.param(200, marks=pytest.mark.full)])
def test_a_stop_in_a_commit_is_no_error_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    (tmp_path / "in").mkdir()
    checkpoint = tmp_path / "checkpoint"
    record = checkpoint / "state" / "holdfast.json"
    with settings(spark, {"spark.sql.shuffle.partitions": str(partitions)}):
        for batch in range(2):
            write_batch(tmp_path / "in", batch, [{"key": key} for key in range(KEYS)])
            counts = source(spark, tmp_path / "in").groupBy("key").count()
            # It waits for the executors; then for the record, which it writes if there is none.
            for recorded in (True, False):
                if not recorded:
                    record.unlink()
                    record.with_name(f".{record.name}.crc").unlink()
                query = stopped_in_its_commit(counts, checkpoint)
                assert query.exception() is None
                assert not (checkpoint / "commits" / str(batch)).exists()
            batches: Batches = {}
            drain(counts, checkpoint=checkpoint, mode="update", into=batches)
            assert batches == {batch: sorted(((k, batch + 1) for k in range(KEYS)), key=repr)}


def test_a_stop_before_a_commit_that_waits_for_nobody_leaves_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No state changed, so no executor is asked: the same holds where all answers are there."""
    (tmp_path / "in").mkdir()
    checkpoint = tmp_path / "checkpoint"
    write_batch(tmp_path / "in", 0, [{"key": 1}])
    counts = source(spark, tmp_path / "in").where("key >= 0").groupBy("key").count()
    drain(counts, checkpoint=checkpoint, mode="update", into={})
    write_batch(tmp_path / "in", 1, [{"key": -1}])
    query = stopped_in_its_commit(counts, checkpoint)
    assert query.exception() is None
    assert not (checkpoint / "commits" / "1").exists()
    drain(counts, checkpoint=checkpoint, mode="update", into={})
    assert (checkpoint / "commits" / "1").exists()
