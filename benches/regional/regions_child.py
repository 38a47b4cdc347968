"""A pipeline of very many regions on a cluster of two executors: ``regions_child.py SPEC FD``."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
BENCHES = str(Path(__file__).resolve().parents[1])
sys.path[0] = BENCHES
# Python workers import the operator.
os.environ["PYTHONPATH"] = os.pathsep.join([BENCHES, os.environ.get("PYTHONPATH", "")])

from pyspark.sql import SparkSession  # noqa: E402

import holdfast  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402
from regional.cluster import read_batches, start_spark, write_batch  # noqa: E402
from regional.counting import COUNTS, Counts  # noqa: E402

_MIB = 1 << 20


def memory_mib(spark: SparkSession) -> dict[str, float]:
    """Return what the driver takes: its JVM's heap after a collection, and both processes."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    beans = jvm.java.lang.management.ManagementFactory
    used = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    process = jvm.java.lang.ProcessHandle.current().pid()
    return {
        "heap_mib": used / _MIB,
        "jvm_mib": _resident_bytes(process) / _MIB,
        "python_mib": _resident_bytes(os.getpid()) / _MIB,
    }


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def last_row_s(marks: Path) -> float:
    """Return when the last row was processed, in seconds since 1970."""
    times: list[float] = [struct.unpack("d", mark.read_bytes())[0] for mark in marks.iterdir()]
    return max(times)


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the batches, and report for each how long it took from its last row on."""
    folder = Path(spec["folder"])
    marks, rows = folder / "marks", folder / "in"
    for path in (marks, rows):
        path.mkdir(parents=True)
    spark = start_spark(executors=2, driver_memory=spec["driver_memory"], settings=spec["settings"])
    query = (
        holdfast.regional(read_batches(spark, rows), region_by="region")
        .apply(Counts(str(marks), every=spec["every"]), schema=COUNTS)
        .write_parquet(folder / "out")
        .start(folder / "checkpoint", name="regions")
    )
    for number in range(spec["batches"]):
        write_batch(rows, number, regions=spec["regions"], rows_of_region=spec["rows_of_region"])
        begun = time.time()
        query.processAllAvailable()
        batch_ms = (time.time() - begun) * 1e3
        (attempt,) = query.history(last=1)
        if attempt.outcome != "global" or query.status()["regions"] != spec["regions"]:
            raise RuntimeError(f"batch {number}: {attempt.outcome}, {query.status()}")
        report(
            "batch",
            number=number,
            load=os.getloadavg()[0],
            batch_ms=batch_ms,
            publish_ms=attempt.ended_ms - last_row_s(marks) * 1e3,
            metadata_kib=len(query.latest.to_bytes()) / 1024,
            **memory_mib(spark),
        )
    query.stop()
    spark.stop()
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
