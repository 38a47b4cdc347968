"""Damages checkpoints of one provider in many ways, and reports the end of the query.

``fault_report_job.py PROVIDER FOLDER RESULTS [--s3] [--only KIND] [--set KEY=VALUE]``. A query runs
some batches and stops. For each fault, a copy of its checkpoint gets the fault, and the query
continues with one more batch. RESULTS gets a line of JSON for each fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from pyspark.sql import SparkSession

import holdfast
from support.spark.fault_queries import QUERIES, Rows, feed
from support.spark.file_faults import FAULTS, LOGS, Changes, files_by_kind, sums_of
from support.spark.java_side import compiled
from support.spark.object_stores import S3Server
from support.spark.old_s3 import OldS3
from support.spark.queries import PROVIDERS, STATE, builder, canonical, configured

#: Providers of the report, with settings.
REPORTED = {
    "default": ("hdfs", {}),
    "rocksdb": ("rocksdb", {}),
    "rocksdb-changelog": (
        "rocksdb",
        {STATE + "rocksdb.changelogCheckpointing.enabled": "true"},
    ),
    "holdfast": ("holdfast", {}),
}
BATCHES: Final = 6
#: Seconds after which a query that neither ends nor fails is abandoned.
PATIENCE_S: Final = 60


@dataclass(frozen=True)
class Disk:
    """The place of checkpoints: as files, and for Spark."""

    folder: Path
    uri: str
    #: The server by which Spark reaches it, if it is an object store.
    server: OldS3 | None = None
    #: Settings and environment of applications that reach it.
    settings: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def local(cls, folder: Path) -> Self:
        return cls(folder, f"file://{folder}")

    @classmethod
    @contextmanager
    def on_s3(cls, folder: Path) -> Iterator[Self]:
        """A server of S3's protocol, and another one before it, by which Spark reaches it."""
        (folder / "s3").mkdir(parents=True)
        # No signature is checked: requests change on their way.
        unsigned = {"s3proxy.authorization": "none"}
        with (
            closing(S3Server(folder / "s3", compiled("UntilInputEnds"), properties=unsigned)) as s3,
            closing(OldS3(s3.settings["fs.s3a.endpoint"], has_conditions=True)) as reached_by,
        ):
            store = s3.store("bucket")
            settings = {**store.settings, "spark.hadoop.fs.s3a.endpoint": reached_by.endpoint}
            yield cls(
                store.folder.parent,
                "s3a://bucket",
                reached_by,
                [f"{key}={value}" for key, value in settings.items()],
                store.environment,
            )

    def location(self, checkpoint: Path) -> str:
        return f"{self.uri}/{checkpoint.relative_to(self.folder)}"

    def faults(self) -> dict[str, Changes]:
        """Return the faults of files by their names."""
        if self.server is None:
            return FAULTS
        late = self.server.late

        def not_listed(file: Path) -> Iterator[Callable[[Path], None]]:
            yield lambda path: late.add(path.relative_to(self.folder).as_posix())

        return {**FAULTS, "not in listings yet": not_listed}


class Reported:
    """The query of one name on one provider, in a folder with its input, and its checkpoints."""

    def __init__(self, spark: SparkSession, name: str, folder: Path, disk: Disk) -> None:
        self.spark = spark
        self.name = name
        self.query, self.mode, self.sources, self.expected = QUERIES[name]
        self.folder = folder
        self.disk = disk
        self.checkpoint = disk.folder / name / "checkpoint"
        self.copies = 0

    def begin(self) -> None:
        """Run the query to the batch before the last one."""
        for batch in range(BATCHES):
            feed(self.folder, batch)
        outcome, why = self.run(self.checkpoint)
        assert outcome == "right", (self.name, outcome, why)
        feed(self.folder, BATCHES)

    def copy(self) -> Path:
        """Return a copy of the checkpoint, under a path that no state store has seen."""
        self.copies += 1
        copy = self.checkpoint.with_name(f"copy-{self.copies}")
        shutil.copytree(self.checkpoint, copy, copy_function=shutil.copy2)
        return copy

    def run(self, checkpoint: Path) -> tuple[str, str]:
        """Let the query take in all input; return its end, and the reason."""
        batches: dict[int, list[Any]] = {}

        def keep(rows: Any, batch: int) -> None:
            batches[batch] = canonical(rows.collect())
            if checkpoint == self.checkpoint:
                time.sleep(0.5)  # for maintenance

        try:
            query = (
                self.query(self.spark, self.folder)
                .writeStream.outputMode(self.mode)
                .option("checkpointLocation", self.disk.location(checkpoint))
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
            said = first_line(error)
            for place in (self.disk.folder, self.disk.uri):
                said = said.replace(f"{place}/{self.name}/", "")
            return "error", said
        last = max(len(list((self.folder / "in").glob("*.parquet"))) - 1, 0)
        wrong = [batch for batch, rows in batches.items() if rows != self.right(batch)]
        if wrong or last not in batches:
            return "wrong", f"batch {wrong[0]}" if wrong else f"batch {last} did not run"
        return "right", ""

    def right(self, batch: int) -> Rows:
        """Return the rows of a batch: each has one input of each source."""
        before, after = (batch,) * self.sources, (batch + 1,) * self.sources
        return canonical(self.expected(before, after))


def results(reported: Reported, only: str | None) -> Iterator[dict[str, Any]]:
    """Try every fault on every kind of file; on an object store a fault has one change."""
    reported.begin()
    at_most = 1 if reported.disk.server else None
    assert reported.run(reported.copy()) == ("right", ""), "without a fault"
    for kind, files in files_by_kind(reported.checkpoint).items():
        if only not in (None, kind) or (kind in LOGS and reported.name != "aggregation"):
            continue
        for fault, changes in reported.disk.faults().items():
            for file in files:
                for change in islice(changes(reported.checkpoint / file), at_most):
                    outcome, why = _with(reported, file, change)
                    yield {
                        "query": reported.name,
                        "kind": kind,
                        "fault": fault,
                        "file": str(file),
                        "outcome": outcome,
                        "why": why,
                    }


def _with(reported: Reported, file: Path, change: Callable[[Path], None]) -> tuple[str, str]:
    copy = reported.copy()
    change(copy / file)
    if not (copy / file).exists():
        sums_of(copy / file).unlink(missing_ok=True)
    try:
        return reported.run(copy)
    finally:
        if reported.disk.server:
            reported.disk.server.late.clear()
        # Maintenance of a store may still write.
        shutil.rmtree(copy, ignore_errors=True)


def first_line(error: Exception) -> str:
    """Return the most useful cause, without the frames of the JVM."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    # The line of the exception follows Py4J's.
    first = lines[1] if lines[0].startswith("An error occurred while calling") else lines[0]
    return (causes[-1] if causes else first.rpartition(" terminated with exception: ")[2])[:300]


def runs(query: str, provider: str) -> bool:
    """True if a provider supports a query."""
    return (query, provider) != ("transformWithState", "default")


def session(provider: str, master: str, folder: Path, settings: Sequence[str]) -> SparkSession:
    """Return a session whose queries have their state with a provider."""
    name, more = REPORTED[provider]
    all_settings = [*(f"{key}={value}" for key, value in more.items()), *settings]
    # Makes snapshots, and changes after them.
    all_settings += [STATE + "maintenanceInterval=100ms", STATE + "minDeltasForSnapshot=4"]
    # Spark hides secrets in long texts by a regular expression, which takes a large stack.
    all_settings.append("spark.driver.extraJavaOptions=-Xss8m")
    configured_builder = configured(builder(master, folder / "warehouse"), all_settings)
    if name == "holdfast":
        configured_builder = holdfast.configure(configured_builder)
    else:
        configured_builder = configured_builder.config(STATE + "providerClass", PROVIDERS[name])
    spark = configured_builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", choices=REPORTED)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument(
        "--s3", action="store_true", help="checkpoints on a server of S3's protocol"
    )
    parser.add_argument("--only", help="one kind of files")
    parser.add_argument("--query", action="append", choices=QUERIES)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Files of one segment, so that a fault hits one that a restart reads.
    settings = [STATE + "holdfast.maxFileBytes=1", *args.set]
    on_disk = Disk.on_s3(args.folder) if args.s3 else nullcontext(Disk.local(args.folder))
    with on_disk as disk, args.results.open("w") as out:
        os.environ |= disk.environment
        spark = session(args.provider, "local[2]", args.folder, [*settings, *disk.settings])
        for name in args.query or (["aggregation"] if args.s3 else QUERIES):
            if runs(name, args.provider):
                reported = Reported(spark, name, args.folder / name, disk)
                for result in results(reported, args.only):
                    print(json.dumps({"provider": args.provider, **result}), file=out, flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
