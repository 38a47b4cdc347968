"""One query over large state in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
BENCHES = str(Path(__file__).resolve().parents[1])
sys.path[0] = BENCHES
# Python workers import the processor.
os.environ["PYTHONPATH"] = os.pathsep.join([BENCHES, os.environ.get("PYTHONPATH", "")])

from common.processes import Process  # noqa: E402
from memory.native import sample, tracking_settings, trim  # noqa: E402

from harness.figures import BatchFigures  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402
from harness.providers import start_session  # noqa: E402
from holdfast.queries.logs import committed_batches  # noqa: E402
from holdfast.queries.state import StateOfQuery  # noqa: E402
from resident.inputs import SCHEMA, TRIGGER_S, Request, write  # noqa: E402
from resident.queries import ALL_QUERIES, BACKFILLS  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_KIB = 1024

#: Of each table in a batch after those that fill the state: enough for a change in every partition.
_SETTLING_ROWS = 1_000

#: Metrics that Holdfast adds to the progress of a query.
OWN = (
    "holdfastColdReads",
    "holdfastLoads",
    "holdfastRuns",
    "holdfastStoredBytes",
    "holdfastUnmerged",
    "holdfastWrittenBytes",
)


class Running:
    """A query of which one batch runs after the other."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any]) -> None:
        self._folder = Path(spec["folder"])
        self._query = ALL_QUERIES[spec["query"]]
        self._build = self._query.build
        if spec.get("without_state"):
            self._build = BACKFILLS[spec["query"]].without_state
        self._running = self._start(spark)
        # The first trigger comes when the query has started, and may take long.
        self._running.processAllAvailable()

    @property
    def checkpoint(self) -> Path:
        """The checkpoint folder."""
        return self._folder / "checkpoint"

    def feed(self, request: Request) -> dict[str, Any]:
        """Run one batch; return what it put out, how its state stands, and what it cost."""
        tables = self._query.tables
        write(self._folder, tables, request.batch(len(tables)))
        self._running.processAllAvailable()
        # A trigger that finds no files may have a progress, too.
        progresses: Iterator[dict[str, Any]] = (
            json.loads(progress.json) for progress in reversed(self._running.recentProgress)
        )
        found = next(
            one for one in progresses if one["batchId"] == request.index and one["numInputRows"]
        )
        emitted = found["observedMetrics"]["emitted"]
        (operator,) = found["stateOperators"] or [{}]
        custom = operator.get("customMetrics", {})
        return {
            **asdict(BatchFigures.from_progress(found)),
            "request": asdict(request),
            "emitted": {"rows": emitted["rows"], "check": emitted["check"] or 0},
            "memory_bytes": operator.get("memoryUsedBytes", 0),
            "own": {name: custom[name] for name in OWN if name in custom},
        }

    def stop(self) -> None:
        """End the query; its checkpoint stays."""
        self._running.stop()

    def _start(self, spark: SparkSession) -> StreamingQuery:
        from pyspark.sql import functions as sf

        for table in self._query.tables:
            (self._folder / table).mkdir(parents=True, exist_ok=True)
        streams = [
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / table))
            for table in self._query.tables
        ]
        rows = self._build(streams).observe(
            "emitted", sf.count(sf.lit(1)).alias("rows"), sf.sum("check").alias("check")
        )
        return (
            rows.writeStream.format("noop")
            .outputMode(self._query.output_mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime=f"{TRIGGER_S} seconds")
            .start()
        )


def fill(running: Running, spec: dict[str, Any], report: Reporter) -> None:
    """Put new keys until the state is large enough, or there are as many as another provider got.

    Then come small batches until runs have every store as it was filled.
    """
    index, keys = 0, 0
    wanted_keys, wanted_bytes = spec["fill_keys"], spec["state_bytes"]
    is_full = False
    while not is_full:
        request = Request(index=index, keys=keys, rows=spec["rows"], new=True)
        found = running.feed(request)
        report("batch", **found)
        index, keys = index + 1, request.keys_after
        is_full = keys >= wanted_keys if wanted_keys else found["memory_bytes"] >= wanted_bytes
    filled = index
    shows_runs = spec["provider"] == "holdfast"
    for index in range(filled, filled + spec["settling"]):
        request = Request(index=index, keys=keys, rows=_SETTLING_ROWS, new=False)
        report("batch", **running.feed(request))
        keys = request.keys_after
        if shows_runs and unmerged(running.checkpoint, until=filled) == 0:
            return
    if shows_runs:
        left = unmerged(running.checkpoint, until=filled)
        raise RuntimeError(
            f"{left} changelogs of the batches that filled the state are in no run after "
            f"{spec['settling']} small batches"
        )


def unmerged(checkpoint: Path, *, until: int) -> int:
    """Return how many changelogs of versions up to `until` the newest batch still needs."""
    newest = committed_batches(checkpoint)[-1]
    left = 0
    for segment in StateOfQuery(checkpoint).segments(newest):
        if isinstance(segment.report, str):
            raise OSError(segment.message)
        left += segment.report.kind == "changelog" and segment.report.created <= until
    return left


def watch(running: Running, spec: dict[str, Any], process: Process, report: Reporter) -> None:
    """Run batches, and report after each what memory the JVM has, and had at most."""
    keys: int = spec["keys"]
    first: int = spec["begun"]
    process.resident_bytes()
    for index in range(first, first + spec["batches"]):
        request = Request(index=index, keys=keys, rows=spec["rows"], new=spec["new"])
        found = running.feed(request)
        seen = sample(process.number, batch=index, state_bytes=found["memory_bytes"])
        # Since the look before, and what looking took is in it.
        peak_kib = process.peak_bytes() // _KIB
        process.resident_bytes()
        report(
            "batch",
            **found,
            native_kib=seen.untracked_kib,
            peak_native_kib=seen.untracked_kib + max(0, peak_kib - seen.rss_kib),
            sample=seen.to_json(),
        )
        keys = request.keys_after
    # Memory that goes away now was kept by malloc, and not in use.
    trim(process.number)
    report("trimmed", native_kib=sample(process.number, batch=index, state_bytes=0).untracked_kib)


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Fill the state of a query, or look at the memory of one whose state was filled."""
    heap = spec["driver_memory"]
    spark = start_session(
        provider=spec["provider"],
        partitions=spec["partitions"],
        driver_memory=heap,
        extra={**tracking_settings(heap), **spec["settings"]},
    )
    jvm: Any = spark._jvm
    process = Process(jvm.java.lang.ProcessHandle.current().pid())
    running = Running(spark, spec)
    if spec["fills"]:
        fill(running, spec, report)
    else:
        watch(running, spec, process, report)
    running.stop()
    report("done")
    spark.stop()


if __name__ == "__main__":
    report_to_parent(run, dict)
