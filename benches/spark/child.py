"""One run of ``groupBy(key).count()`` in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import sys

from holdfast.demo.figures import BatchFigures
from holdfast.demo.process import Reporter
from holdfast.demo.providers import start_session

_POLL_S = 0.25


def run(spec: dict[str, str], report: Reporter) -> None:
    """Run the query over all files, one file per batch, and report every batch."""
    spark = start_session(
        provider=spec["provider"],
        partitions=int(spec["partitions"]),
        driver_memory=spec["driver_memory"],
    )
    report("started")
    query = (
        spark.readStream.schema("key LONG")
        .option("maxFilesPerTrigger", 1)
        .parquet(spec["data"])
        .groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", spec["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    reported = 0
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(_POLL_S))
        progresses = query.recentProgress
        for progress in progresses[reported:]:
            report("batch", **BatchFigures.from_progress(json.loads(progress.json)).to_json())
        reported = len(progresses)
    report("done")
    spark.stop()


if __name__ == "__main__":
    reporter = Reporter(int(sys.argv[2]))
    try:
        run(json.loads(sys.argv[1]), reporter)
    except Exception as error:
        reporter("failed", message=f"{type(error).__name__}: {error}".splitlines()[0])
        raise
