"""One run of one query in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness.process import Reporter, report_to_parent
from harness.providers import start_session

# A script finds what is beside it; this is where the package is.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from common.recording import end_recordings

from spark.queries import QUERIES, SCHEMA

_POLL_S = 0.25


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the query over all files, one file per batch and table, and report every batch."""
    spark = start_session(
        provider=spec["provider"],
        partitions=spec["partitions"],
        driver_memory=spec["driver_memory"],
        extra=spec["settings"],
    )
    report("started")
    query = QUERIES[spec["query"]]
    streams = [
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{spec['data']}/{table}")
        for table in query.tables
    ]
    running = (
        query.build(streams)
        .writeStream.format("noop")
        .outputMode(query.output_mode)
        .option("checkpointLocation", spec["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    report.follow(running, poll_s=_POLL_S)
    end_recordings(spark)
    report("done")
    spark.stop()


if __name__ == "__main__":
    report_to_parent(run, dict)
