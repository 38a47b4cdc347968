"""``foreachBatch`` with sinks that do more than look at every row once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark.operator_cases import count_and_sum
from support.spark.operator_inputs import BATCHES, events
from support.spark.queries import canonical, source, write_batch

pytestmark = pytest.mark.versions


def test_a_sink_that_runs_the_batch_twice_sees_the_same_rows_and_loads_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number, rows in enumerate(events()):
        write_batch(folder, number, rows)
    runs: list[tuple[int, int]] = []

    def twice(batch: DataFrame, batch_id: int) -> None:
        first, second = (canonical(batch.collect()) for _ in range(2))
        assert first == second
        runs.append((batch_id, sum(row[1] for row in first)))

    query = (
        count_and_sum({"events": source(spark, folder)})
        .writeStream.outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(twice)
        .start()
    )
    query.awaitTermination()
    assert runs == [(batch, (batch + 1) * 120) for batch in range(BATCHES)]
    metrics = [p["stateOperators"][0]["customMetrics"] for p in query.recentProgress]
    # The second run goes back by undoing the first; the next batch builds on the first run's ids.
    assert all(m["holdfastRewinds"] > 0 for m in metrics)
    assert [m["holdfastLoads"] for m in metrics[1:]] == [0] * (BATCHES - 1)
