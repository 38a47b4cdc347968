"""Damages checkpoints of one provider in many ways, and says what became of the query.

``fault_report_job.py PROVIDER FOLDER RESULTS [--only KIND] [--set KEY=VALUE]``. A query runs some
batches and stops. For each fault, a copy of its checkpoint gets the fault, and the query goes on
from there with one more batch. RESULTS gets a line of JSON for each fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import holdfast
from support.spark.fault_queries import QUERIES, feed
from support.spark.file_faults import FAULTS, LOGS, files_by_kind, sums_of
from support.spark.queries import PROVIDERS, STATE, builder, canonical, configured

#: Providers of the report, with settings.
REPORTED = {
    "default": ("hdfs", {}),
    "rocksdb": ("rocksdb", {}),
    "rocksdb-changelog": (
        "rocksdb",
        {STATE + "rocksdb.changelogCheckpointing.enabled": "true"},
    ),
    # Files with one segment each, so that a fault hits one that a restart reads.
    "holdfast": ("holdfast", {STATE + "holdfast.maxFileBytes": "1"}),
}
BATCHES: Final = 6
#: Seconds after which a query that neither ends nor fails is given up.
PATIENCE_S: Final = 60


class Reported:
    """The query of one name on one provider, in a folder with its input and its checkpoints."""

    def __init__(self, spark: SparkSession, name: str, folder: Path) -> None:
        self.spark = spark
        self.name = name
        self.query, self.mode, self.expected = QUERIES[name]
        self.folder = folder
        self.copies = 0

    def begin(self) -> Path:
        """Run the query to the batch before the last one; return its checkpoint."""
        checkpoint = self.folder / "checkpoint"
        for batch in range(BATCHES):
            feed(self.folder, batch)
        outcome, why = self.run(checkpoint)
        assert outcome == "right", (self.name, outcome, why)
        feed(self.folder, BATCHES)
        return checkpoint

    def copy_of(self, checkpoint: Path) -> Path:
        """Return a copy of a checkpoint, under a path that no state store has seen."""
        self.copies += 1
        copy = self.folder / f"copy-{self.copies}"
        shutil.copytree(checkpoint, copy, copy_function=shutil.copy2)
        return copy

    def run(self, checkpoint: Path) -> tuple[str, str]:
        """Let the query take in what there is; return what became of it, and why."""
        batches: dict[int, list[Any]] = {}

        def keep(rows: Any, batch: int) -> None:
            batches[batch] = canonical(rows.collect())
            if checkpoint == self.folder / "checkpoint":
                time.sleep(0.5)  # for maintenance

        try:
            query = (
                self.query(self.spark, self.folder)
                .writeStream.outputMode(self.mode)
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .foreachBatch(keep)
                .start()
            )
            try:
                if not query.awaitTermination(PATIENCE_S):
                    return "hangs", ""
            finally:
                query.stop()
        except Exception as error:
            return "error", _first_line(error).replace(f"{self.folder}/", "")
        last = max(len(list((self.folder / "in").glob("*.parquet"))) - 1, 0)
        wrong = [batch for batch in batches if batches[batch] != canonical(self.expected(batch))]
        if wrong or last not in batches:
            return "wrong", f"batch {wrong[0]}" if wrong else f"batch {last} did not run"
        return "right", ""


def results(reported: Reported, only: str | None) -> Iterator[dict[str, Any]]:
    """Try every fault on every kind of file."""
    checkpoint = reported.begin()
    assert reported.run(reported.copy_of(checkpoint)) == ("right", ""), "without a fault"
    for kind, files in files_by_kind(checkpoint).items():
        if only not in (None, kind) or (kind in LOGS and reported.name != "aggregation"):
            continue
        for fault, changes in FAULTS.items():
            for file in files:
                for change in changes(checkpoint / file):
                    outcome, why = _with(reported, checkpoint, file, change)
                    yield {
                        "query": reported.name,
                        "kind": kind,
                        "fault": fault,
                        "file": str(file),
                        "outcome": outcome,
                        "why": why,
                    }


def _with(
    reported: Reported, checkpoint: Path, file: Path, change: Callable[[Path], None]
) -> tuple[str, str]:
    copy = reported.copy_of(checkpoint)
    change(copy / file)
    if not (copy / file).exists():
        sums_of(copy / file).unlink(missing_ok=True)
    try:
        return reported.run(copy)
    finally:
        # Maintenance of a store may still write there.
        shutil.rmtree(copy, ignore_errors=True)


def _first_line(error: Exception) -> str:
    """Return the cause that says most, without the frames of the JVM."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0].rpartition(" terminated with exception: ")[2])[:300]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", choices=REPORTED)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", help="one kind of files")
    parser.add_argument("--query", action="append", choices=QUERIES)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    provider, more = REPORTED[args.provider]
    settings = [*(f"{key}={value}" for key, value in more.items()), *args.set]
    # So that there are snapshots, and changes behind them.
    settings += [STATE + "maintenanceInterval=100ms", STATE + "minDeltasForSnapshot=4"]
    # Spark hides secrets in long texts by a regular expression, which takes a large stack.
    settings.append("spark.driver.extraJavaOptions=-Xss8m")
    session = configured(builder("local[2]", args.folder / "warehouse"), settings)
    if provider == "holdfast":
        session = holdfast.configure(session)
    else:
        session = session.config(STATE + "providerClass", PROVIDERS[provider])
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with args.results.open("w") as out:
        for name in args.query or QUERIES:
            if name == "transformWithState" and provider == "hdfs":
                continue  # Spark refuses it there.
            folder = args.folder / name
            for result in results(Reported(spark, name, folder), args.only):
                out.write(json.dumps({"provider": args.provider, **result}) + "\n")
                out.flush()
    spark.stop()


if __name__ == "__main__":
    main()
