"""Two queries of one application that differ in one setting: ``child.py SPEC FD``."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.figures import BatchFigures
from harness.process import Reporter, report_to_parent
from harness.providers import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: An idle query looks for input as often, beside the batch of the other one.
_POLL = "300ms"
_SENT = Path("/sys/class/net/lo/statistics/tx_bytes")


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run single batches of both queries in turns, and report the figures of each."""
    spark = start_session(
        provider="holdfast",
        partitions=spec["partitions"],
        driver_memory=spec["driver_memory"],
        extra={
            "spark.sql.streaming.pollingDelay": _POLL,
            "spark.sql.streaming.minBatchesToRetain": "10",
            "spark.sql.streaming.stateStore.holdfast.deadLetters": f"{spec['folder']}/dead",
            **spec["settings"],
        },
    )
    folder = Path(spec["folder"])
    rows = spark.range(spec["rows"]).selectExpr("id * 7919 % 100003 AS key").coalesce(1)
    rows.write.parquet(str(folder / "rows"))
    file = next((folder / "rows").glob("*.parquet"))
    names = list(spec["values"])
    queries = {
        name: start(spark, folder / name, spec, value) for name, value in spec["values"].items()
    }
    for pair in itertools.count(-spec["warm_up"]):
        if pair == spec["pairs"]:
            break
        for name in names[:: 1 if pair % 2 else -1]:
            os.link(file, folder / name / f"{pair}.parquet")
            sent = int(_SENT.read_text())
            queries[name].processAllAvailable()
            sent = int(_SENT.read_text()) - sent
            progress = last_batch(queries[name])
            batch = BatchFigures.from_progress(progress)
            report(
                "batch",
                name=name,
                pair=pair,
                ms=batch.batch_ms,
                rows=batch.input_rows,
                sent=sent,
                stored=progress["stateOperators"][0]["customMetrics"]["holdfastStoredBytes"],
            )
    for query in queries.values():
        query.stop()
    spark.stop()
    report("done")


def start(spark: SparkSession, folder: Path, spec: dict[str, Any], value: str) -> StreamingQuery:
    """Count rows by key. Spark reads the setting when the query starts."""
    folder.mkdir()
    spark.conf.set(spec["setting"], value)
    rows = spark.readStream.schema("key long").parquet(str(folder))
    return (
        rows.groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", f"{spec['uri']}/{folder.name}-checkpoint")
        .start()
    )


def last_batch(query: StreamingQuery) -> Any:
    """Return the progress of the last batch that had rows."""
    return next(one for one in reversed(query.recentProgress) if one["numInputRows"])


if __name__ == "__main__":
    report_to_parent(run, dict)
