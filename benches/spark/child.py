"""One run of ``groupBy(key).count()`` in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import sys

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
    report.follow(query, poll_s=_POLL_S)
    report("done")
    spark.stop()


if __name__ == "__main__":
    with Reporter(int(sys.argv[2])) as reporter:
        run(json.loads(sys.argv[1]), reporter)
