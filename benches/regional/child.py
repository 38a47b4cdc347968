"""Pipelines that take turns, batch by batch, in one Spark application: ``child.py SPEC FD``."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
BENCHES = str(Path(__file__).resolve().parents[1])
sys.path[0] = BENCHES
# Python workers import the operator.
os.environ["PYTHONPATH"] = os.pathsep.join([BENCHES, os.environ.get("PYTHONPATH", "")])

import pyarrow.dataset as ds  # noqa: E402
from common.processes import cpu_of_tree  # noqa: E402
from common.recording import end_recordings  # noqa: E402
from common.rounds import WrongStateError  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

import holdfast  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402
from harness.providers import SPARK_PROVIDERS, start_session  # noqa: E402
from regional.workload import (  # noqa: E402
    DEVIATIONS,
    DEVIATIONS_DDL,
    ROWS_DDL,
    TASKS,
    Deviations,
    DeviationsByKey,
    SparkDeviationsByKey,
    plain_rows,
    plain_task,
)

#: For a region that fails in every batch: by default the pipeline would insist on it.
_FOR_EVER: dict[str, Any] = {
    "max_consecutive_failures": 1_000_000,
    "max_region_staleness": (1_000_000, timedelta(days=365)),
}


class Variant:
    """One streaming query with input, output and checkpoint of its own."""

    def __init__(
        self, spark: SparkSession, spec: dict[str, Any], name: str, *, files: str = "files"
    ) -> None:
        self.name = name
        self._batches = 0
        self._files = [Path(file) for file in spec[files]]
        self._rows = spec["rows"]
        root = Path(spec["folder"]) / name.replace(" ", "-").replace(",", "")
        self._staged = root / "staged"
        self._input = root / "in"
        self.out = root / "out"
        self.checkpoint = root / "checkpoint"
        for folder in (self._staged, self._input, self.out):
            folder.mkdir(parents=True)
        self.frame = (
            spark.readStream.schema(ROWS_DDL)
            .option("maxFilesPerTrigger", TASKS)
            .parquet(f"{self._input}/*")
        )
        self._written = 0
        self.query: Any = None

    @property
    def stream(self) -> Any:
        """Spark's query."""
        return self.query.stream if isinstance(self.query, holdfast.RegionalQuery) else self.query

    def add_rows(self) -> None:
        """Let the rows of one more batch arrive, all in one step."""
        name = f"{self._batches:04}"
        (self._staged / name).mkdir()
        for file in self._files:
            os.link(file, self._staged / name / file.name)
        (self._staged / name).rename(self._input / name)
        self._batches += 1

    def batch(self) -> dict[str, float]:
        """Run one batch; returns its figures."""
        batch_id = self._batches
        before = cpu_of_tree(os.getpid())
        self.add_rows()
        self.query.processAllAvailable()
        cpu_s = cpu_of_tree(os.getpid()) - before
        reports = [json.loads(progress.json) for progress in self.stream.recentProgress]
        found = [report for report in reports if report["batchId"] == batch_id]
        rows = sum(source["numInputRows"] for report in found for source in report["sources"])
        if rows < self._rows:
            raise WrongStateError(f"{self.name}: expected {self._rows} rows, found {rows}")
        batch_ms = max(report["durationMs"]["triggerExecution"] for report in found)
        written = self.rows_in_output()
        figures = {"batch_ms": batch_ms, "cpu_s": cpu_s, "rows": written - self._written}
        self._written = written
        return figures

    def rows_in_output(self) -> int:
        """Rows that a reader of the output folder sees."""
        found: int = ds.dataset(self.out, schema=DEVIATIONS, format="parquet").count_rows()
        return found


def _regional(
    variant: Variant, operator: holdfast.Operator, *, per_region: bool = False, **options: Any
) -> None:
    variant.query = (
        holdfast.regional(variant.frame, region_by="region")
        .apply(operator, schema=DEVIATIONS)
        .write_parquet(variant.out, per_region=per_region)
        .start(variant.checkpoint, name=variant.name, **options)
    )


def _by_spark_and_key(variant: Variant) -> None:
    found = variant.frame.groupBy("region", "id").transformWithState(
        SparkDeviationsByKey(), DEVIATIONS_DDL, "Append", "None"
    )
    for setting, value in SPARK_PROVIDERS["rocksdb-changelog"].items():
        found.sparkSession.conf.set(setting, value)
    variant.query = (
        found.writeStream.option("checkpointLocation", str(variant.checkpoint))
        .option("path", str(variant.out))
        .start()
    )


def _plain(variant: Variant) -> None:
    def write(rows: DataFrame, batch_id: int) -> None:
        task = functools.partial(plain_task, folder=str(variant.out), batch_id=batch_id)
        rows.mapInArrow(task, "regions int").collect()

    _for_each_batch(variant, write)


def _plain_by_spark(variant: Variant) -> None:
    def write(rows: DataFrame, batch_id: int) -> None:
        found = rows.mapInArrow(plain_rows, DEVIATIONS_DDL)
        found.write.mode("append").option("compression", "zstd").parquet(str(variant.out))

    _for_each_batch(variant, write)


def _for_each_batch(variant: Variant, write: Callable[[DataFrame, int], None]) -> None:
    variant.query = (
        variant.frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(variant.checkpoint))
        .start()
    )


class Turns:
    """Runs the variants of a case: each is warmed up, then they take turns batch by batch."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any], report: Reporter) -> None:
        self.spec = spec
        self._spark = spark
        self.report = report
        self._variants: list[Variant] = []

    def add(self, name: str, start: Callable[[Variant], None], *, files: str = "files") -> float:
        """Start a variant; returns the time of its last batch of the warm-up, in ms."""
        variant = Variant(self._spark, self.spec, name, files=files)
        start(variant)
        figures = {"batch_ms": 0.0}
        for _ in range(self.spec["warm_up"]):
            figures = variant.batch()
            self.tell(variant.name, None, figures)
        self._variants.append(variant)
        return figures["batch_ms"]

    def run(self) -> None:
        """Run all rounds, every other one backwards.

        A batch leaves work behind for the one that follows it (files to be written back, garbage,
        code to be compiled). In an order that rotates, most batches of a variant follow those of
        the same other one, and bear what it leaves.
        """
        for number in range(self.spec["rounds"]):
            for variant in self._variants[:: -1 if number % 2 else 1]:
                self.tell(variant.name, number, variant.batch())

    def refused(self, name: str, start: Callable[[Variant], None]) -> None:
        """Run one batch per round with a pipeline that ends without having published any row."""
        for number in range(self.spec["rounds"]):
            variant = Variant(self._spark, self.spec, f"{name} {number}")
            variant.add_rows()
            begun = time.monotonic()
            start(variant)
            try:
                variant.query.awaitTermination()
            except holdfast.RegionalQueryError:
                batch_ms = (time.monotonic() - begun) * 1e3
            else:
                raise WrongStateError(f"{name}: the pipeline went on without a region")
            self.tell(name, number, {"batch_ms": batch_ms, "rows": variant.rows_in_output()})

    def tell(self, name: str, number: int | None, figures: dict[str, float]) -> None:
        """Report one batch; those of the warm-up have no number of a round."""
        self.report("batch", variant=name, round=number, load=os.getloadavg()[0], **figures)


def healthy(turns: Turns) -> None:
    """All regions healthy, and the same work without state, checkpoints and syncs."""
    turns.add("plain", _plain)
    turns.add("plain, Spark writes", _plain_by_spark)
    turns.add("holdfast", lambda variant: _regional(variant, Deviations()))
    turns.run()


def failing(turns: Turns) -> None:
    """One region fails in every batch."""
    operator = Deviations(failing=turns.spec["region"])
    turns.add("undisturbed", lambda variant: _regional(variant, Deviations()))
    turns.add("holdfast", lambda variant: _regional(variant, operator, **_FOR_EVER))
    turns.run()
    turns.refused(
        "global only", lambda variant: _regional(variant, operator, max_consecutive_failures=0)
    )


def quarantine(turns: Turns) -> None:
    """One region is in quarantine."""
    operator = Deviations(failing=turns.spec["region"])
    turns.add("undisturbed", lambda variant: _regional(variant, Deviations()))
    turns.add(
        "holdfast",
        lambda variant: _regional(variant, operator, quarantine_after=1),
    )
    turns.run()


def many(turns: Turns) -> None:
    """Many regions, and the same rows in 64 regions."""
    files = "files_of_many"
    turns.add("64 regions", lambda variant: _regional(variant, Deviations()))
    turns.add("holdfast", lambda variant: _regional(variant, Deviations()), files=files)
    turns.add(
        "a file for each region",
        lambda variant: _regional(variant, Deviations(), per_region=True),
        files=files,
    )
    turns.run()


def slow(turns: Turns) -> None:
    """One region needs ten times as long for its rows as the whole batch takes without it."""
    batch_ms = turns.add("undisturbed", lambda variant: _regional(variant, Deviations()))
    timeout_s = batch_ms / 1e3 * turns.spec["timeout_batches"]
    wait_s = batch_ms / 1e3 * turns.spec["slower"] / turns.spec["rows_of_region"]
    operator = Deviations(slow=turns.spec["region"], wait_s=wait_s)
    timeout = timedelta(seconds=timeout_s)

    def start(variant: Variant) -> None:
        _regional(variant, operator, aligned_timeout=timeout)

    turns.report("timeout", ms=timeout_s * 1e3)
    turns.add("holdfast", start)
    turns.run()


def by_key(turns: Turns) -> None:
    """A sum for each key, and the same work by Spark's transformWithState on RocksDB."""
    turns.add("transformWithState", _by_spark_and_key)
    turns.add("holdfast", lambda variant: _regional(variant, DeviationsByKey()))
    turns.run()


CASES = {
    "healthy": healthy,
    "failing": failing,
    "quarantine": quarantine,
    "many": many,
    "slow": slow,
    "by_key": by_key,
}


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the pipelines of a case."""
    # Spark looks for new data twice a second, and not all the time.
    settings = {"spark.sql.streaming.pollingDelay": "500ms", **spec["settings"]}
    spark = start_session(
        provider="holdfast",
        partitions=TASKS,
        driver_memory=spec["driver_memory"],
        extra=settings,
    )
    spark.sparkContext.setLogLevel("ERROR")
    CASES[spec["case"]](Turns(spark, spec, report))
    end_recordings(spark)
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
    # Stopping the queries would replay what slow and failing regions owe.
    os._exit(0)
