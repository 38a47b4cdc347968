"""Queries in Real-Time Mode and in micro-batches, in one application. Run as a program.

Reads a line of JSON for each run from its standard input, and answers with another. A run names
the ``queries`` that run at the same time, each with its ``query``, ``trigger``, topics ``read`` and
``write`` and ``checkpoint``, its ``sink`` if that is not the topic, and ``until``, the number of
rows after which it is stopped, or none if it goes on until it fails. ``settings`` are the session's
for this run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

import holdfast
from support.spark import queries
from support.spark.real_time import query as query_named

DEADLINE_SECONDS = 120
TRIGGERS: dict[str, dict[str, Any]] = {
    "realTime": {"realTime": "1 second"},
    "availableNow": {"availableNow": True},
    "processingTime": {"processingTime": "0 seconds"},
}
SHORT_BATCHES = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}


class Appended:
    """A writer of ``foreach`` that appends to a file of its process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, row: Any) -> None:
        with Path(self.folder, "rows").open("a") as file:
            file.write(row.value + "\n")


def started(spark: Any, servers: str, wanted: dict[str, Any]) -> StreamingQuery:
    rows = query_named(spark, servers, wanted["read"], wanted["query"])
    to = rows.writeStream.outputMode("update").trigger(**TRIGGERS[wanted["trigger"]])
    to = to.option("checkpointLocation", wanted["checkpoint"])
    sink = wanted.get("sink", "kafka")
    if sink == "foreach":
        return to.foreach(Appended(wanted["folder"])).start()
    if sink == "kafka":
        to = to.option("kafka.bootstrap.servers", servers).option("topic", wanted["write"])
    return to.format(sink).start()


def read_rows(query: StreamingQuery) -> int:
    """Rows of the topic that are in committed batches."""
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    if end is None:
        return 0
    offsets = json.loads(end) if isinstance(end, str) else end
    return sum(sum(partitions.values()) for partitions in offsets.values())


def end(query: StreamingQuery, wanted: dict[str, Any]) -> dict[str, Any]:
    """Wait until the query has read its rows, or failed, and stop it."""
    until = wanted.get("until")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while query.isActive and (until is None or read_rows(query) < until):
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)
    plan = query._jsq.explainInternal(True)
    query.stop()
    failed = query.exception()
    return {"error": str(failed) if failed else None, "rows": read_rows(query), "plan": plan}


def answered(spark: Any, servers: str, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ends of queries that run at the same time."""
    try:
        running = [(started(spark, servers, one), one) for one in wanted]
        return [end(query, one) for query, one in running]
    except PySparkException as e:
        return [{"error": str(e)}]
    finally:
        for query in spark.streams.active:
            query.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--master", default="local[12]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--options", type=json.loads, default={})
    args = parser.parse_args()
    settings = queries.configured(
        queries.builder(args.master, args.folder / "warehouse"), args.conf
    )
    settings = settings.config(map=SHORT_BATCHES)
    spark = holdfast.configure(settings, **args.options).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for line in sys.stdin:
        run = json.loads(line)
        with queries.settings(spark, run.get("settings", {})):
            answer = answered(spark, args.servers, run["queries"])
        print(json.dumps({"queries": answer}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
