"""What the harness of benchmarks and examples reports of a query while it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pyspark.sql import SparkSession

from harness.process import Reporter
from support.spark.queries import settings, source, write_batch

BATCHES = 12
#: Spark keeps 100 of them by default.
KEPT = 5


def test_every_batch_is_reported_once_though_spark_forgets_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number in range(BATCHES):
        write_batch(folder, number, [{"key": number}])
    reader, writer = os.pipe()
    with (
        os.fdopen(reader) as events,
        settings(spark, {"spark.sql.streaming.numRecentProgressUpdates": str(KEPT)}),
    ):
        counts = source(spark, folder).groupBy("key").count()
        running = (
            counts.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with Reporter(writer) as report:
            report.follow(running, poll_s=0.02)
        assert len(running.recentProgress) <= KEPT
        reported = [json.loads(line) for line in events]
    assert [event["batch_id"] for event in reported] == list(range(BATCHES))
    assert [event["state_rows"] for event in reported] == list(range(1, BATCHES + 1))
