"""One process of a query or pipeline, which begins or goes on: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
BENCHES = str(Path(__file__).resolve().parents[1])
sys.path[0] = BENCHES
# Python workers import the operator.
os.environ["PYTHONPATH"] = os.pathsep.join([BENCHES, os.environ.get("PYTHONPATH", "")])

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from common.recording import end_recordings  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as sf  # noqa: E402
from regional.cluster import TASKS, read_batches, write_batch  # noqa: E402
from regional.totals import TOTALS, Totals  # noqa: E402

import holdfast  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402
from harness.providers import start_session  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


class Running(ABC):
    """A query that is fed batch by batch."""

    @abstractmethod
    def feed(self, number: int) -> dict[str, Any]:
        """Run a batch; returns what is known of it.

        Raises
        ------
        RuntimeError
            If its result is not what it has to be.
        """

    @abstractmethod
    def stop(self) -> None:
        """End the query; its checkpoint stays."""


class Aggregation(Running):
    """Counts by key; every batch has every key once, so that all stores have something to do."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any]) -> None:
        self._folder = Path(spec["folder"])
        self._keys = spec["rows"]
        counted = (
            spark.readStream.schema("key long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / "in"))
            .groupBy("key")
            .count()
            .observe("emitted", sf.count(sf.lit(1)).alias("rows"), sf.sum("count").alias("sum"))
        )
        self._running: StreamingQuery = (
            counted.writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", spec["uri"])
            .start()
        )

    def feed(self, number: int) -> dict[str, Any]:
        staged = self._folder / "staged"
        pq.write_table(pa.table({"key": pa.array(range(self._keys), pa.int64())}), staged)
        staged.rename(self._folder / "in" / f"{number:04}.parquet")
        self._running.processAllAvailable()
        # A trigger that finds no files may have a progress, too.
        progresses = (json.loads(one.json) for one in reversed(self._running.recentProgress))
        progress = next(one for one in progresses if one["numInputRows"])
        emitted = progress["observedMetrics"]["emitted"]
        expected = {"rows": self._keys, "sum": self._keys * (number + 1)}
        if (progress["batchId"], emitted) != (number, expected):
            raise RuntimeError(
                f"batch {number}: expected {expected}, found {emitted} of batch "
                f"{progress['batchId']}"
            )
        (operator,) = progress["stateOperators"]
        loads_ms = operator["customMetrics"].get("holdfastLoadMs")
        return {} if loads_ms is None else {"loads_s": loads_ms / 1_000}

    def stop(self) -> None:
        self._running.stop()


class Pipeline(Running):
    """A regional pipeline with 8 KB of state in each region, all of which every batch changes."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any]) -> None:
        self._folder = Path(spec["folder"])
        self._regions, self._rows = spec["size"], spec["rows"]
        self._query = (
            holdfast.regional(read_batches(spark, self._folder / "in"), region_by="region")
            .apply(Totals(), schema=TOTALS)
            .write_parquet(self._folder / "out")
            .start(spec["uri"], name=self._folder.name)
        )

    def feed(self, number: int) -> dict[str, Any]:
        folder = self._folder / "in"
        write_batch(folder, number, regions=self._regions, rows_of_region=self._rows)
        self._query.processAllAvailable()
        record = self._query.history()[-1]
        if (record.batch_id, record.outcome) != (number, "global"):
            raise RuntimeError(f"batch {number}: {self._query.history()}")
        return {}

    def stop(self) -> None:
        self._query.stop()


KINDS: dict[str, type[Aggregation | Pipeline]] = {
    "aggregation": Aggregation,
    "pipeline": Pipeline,
}


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run some batches, and report how long it took until each was over."""
    spark = start_session(
        provider=spec["provider"],
        partitions=spec["size"] if spec["kind"] == "aggregation" else TASKS,
        driver_memory=spec["driver_memory"],
        extra=spec["settings"],
    )
    spark.sparkContext.setLogLevel("ERROR")
    begun = time.monotonic()
    running = KINDS[spec["kind"]](spark, spec)
    start_s = time.monotonic() - begun
    for number in range(spec["first"], spec["first"] + spec["batches"]):
        figures = running.feed(number)
        first_s = time.monotonic() - begun
        report("batch", number=number, start_s=start_s, first_s=first_s, **figures)
    running.stop()
    end_recordings(spark)
    spark.stop()
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
