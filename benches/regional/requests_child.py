"""Requests of a regional pipeline and of ``foreachBatch``: ``requests_child.py SPEC FD``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
BENCHES = str(Path(__file__).resolve().parents[1])
sys.path[0] = BENCHES
# Python workers import the operator.
os.environ["PYTHONPATH"] = os.pathsep.join([BENCHES, os.environ.get("PYTHONPATH", "")])

from pyspark.sql import DataFrame, SparkSession  # noqa: E402

import holdfast  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402
from regional.cluster import read_batches, start_spark, write_batch  # noqa: E402
from regional.places import Place, open_place  # noqa: E402
from regional.totals import TOTALS, Totals  # noqa: E402

#: What writes Spark's own files of a checkpoint; without it Spark does.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def _plain(frame: DataFrame, checkpoint: str, _: Path) -> StreamingQuery:
    def write(rows: DataFrame, batch_id: int) -> None:
        rows.mapInArrow(lambda batches: batches, "region string, id long").collect()

    return frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def _spark(frame: DataFrame, checkpoint: str, folder: Path) -> StreamingQuery:
    settings = frame.sparkSession.conf
    ours = settings.get(FILE_MANAGER)
    settings.unset(FILE_MANAGER)
    query = _plain(frame, checkpoint, folder)
    # Its sources take the settings of the session when it begins its first batch.
    query.processAllAvailable()
    settings.set(FILE_MANAGER, ours)
    return query


def _holdfast(frame: DataFrame, checkpoint: str, folder: Path) -> holdfast.RegionalQuery:
    return (
        holdfast.regional(frame, region_by="region")
        .apply(Totals(), schema=TOTALS)
        .write_parquet(folder / "out")
        .start(checkpoint, name=folder.name)
    )


VARIANTS: dict[str, Callable[[DataFrame, str, Path], Any]] = {
    "spark": _spark,
    "plain": _plain,
    "holdfast": _holdfast,
}


def measure(
    spark: SparkSession, place: Place, name: str, number: int, spec: dict[str, Any]
) -> dict[str, Any]:
    """Run one query for some batches; returns the requests and the time of a batch."""
    folder = Path(spec["folder"]) / f"{name}-{number}"
    rows = folder / "in"
    rows.mkdir(parents=True)
    write = partial(
        write_batch, rows, regions=spec["regions"], rows_of_region=spec["rows_of_region"]
    )
    write(0)
    query = VARIANTS[name](read_batches(spark, rows), f"{place.uri}/{folder.name}", folder)
    query.processAllAvailable()
    for batch in range(1, spec["warm_up"]):
        write(batch)
        query.processAllAvailable()
    before, begun = place.requests(), time.monotonic()
    times_ms = []
    for batch in range(spec["warm_up"], spec["warm_up"] + spec["batches"]):
        write(batch)
        query.processAllAvailable()
        stream_query = query.stream if name == "holdfast" else query
        times_ms.append(stream_query.lastProgress["durationMs"]["triggerExecution"])
    counts = place.requests()
    counts.subtract(before)
    elapsed_s = time.monotonic() - begun
    query.stop()
    if name == "holdfast" and {record.outcome for record in query.history()} != {"global"}:
        raise RuntimeError(f"{name}: {query.history()}")
    return {"requests": +counts, "times_ms": times_ms, "elapsed_s": elapsed_s}


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Measure all rounds; the variants take turns."""
    with open_place(spec["place"], Path(spec["folder"]) / spec["place"]) as place:
        spark = start_spark(
            executors=spec["executors"],
            driver_memory=spec["driver_memory"],
            settings={**place.settings, **spec["settings"]},
        )
        for number in range(spec["rounds"]):
            for name in list(VARIANTS)[:: -1 if number % 2 else 1]:
                load = os.getloadavg()[0]
                figures = measure(spark, place, name, number, spec)
                report("measured", variant=name, round=number, load=load, **figures)
        spark.stop()
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
