"""A query that is restarted while its application gets and loses executors.

Writes ``report.json``: by number of executors the first and the last batch with them, and the open
stores of each executor then. Prints by batch its time, and its state tasks on each executor.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import builder, canonical, configured, source, write_batch

DRIVER = "io.holdfast.spark.driver"
#: At three one is decommissioned, at two another one is killed.
EXECUTORS = (1, 2, 4, 3, 2)
RESTART_WITH = 4
BATCHES_EACH = 4
PARTITIONS = 20

#: Executors start when the job requests them, and stay.
DYNAMIC = {
    "dynamicAllocation.enabled": "true",
    "dynamicAllocation.minExecutors": "1",
    "dynamicAllocation.maxExecutors": str(max(EXECUTORS)),
    "dynamicAllocation.schedulerBacklogTimeout": "10h",
    "dynamicAllocation.executorIdleTimeout": "10h",
    "executor.cores": "1",
    "eventLog.enabled": "true",
    "eventLog.rolling.enabled": "false",
    "eventLog.compress": "false",
    "sql.shuffle.partitions": str(PARTITIONS),
    # A place counts even if tasks take long on a busy machine.
    "locality.wait": "60s",
    "decommission.enabled": "true",
}


def counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"))


def joined(rows: DataFrame) -> DataFrame:
    """Has four stores for each partition."""
    return rows.alias("a").join(rows.alias("b"), "key").select("key", "a.batch", "b.batch")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "counts": (counts, "complete"),
    "joined": (joined, "append"),
}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Executors:
    """The executors of a session, and the state stores of one query on them."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._context = self._jvm.org.apache.spark.SparkContext.getOrCreate()
        self._folder = str(checkpoint / "state" / "holdfast")

    def count(self) -> int:
        """Return their number, without the driver."""
        return int(self._context.getExecutorMemoryStatus().size()) - 1

    def become(self, wanted: int) -> None:
        """Get executors, or lose the first ones."""
        missing = wanted - self.count()
        if missing > 0:
            assert self._context.requestExecutors(missing)
        elif missing < 0:
            self._lose(wanted)
        wait_until(lambda: self.count() == wanted, f"{wanted} executors")

    def _lose(self, wanted: int) -> None:
        backend = self._context.schedulerBackend()
        first = min(self.open_stores())
        if wanted == 3:
            info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo
            why = info("by the test", self._jvm.scala.Option.empty())
            assert backend.decommissionExecutor(first, why, True, False)
        else:
            assert backend.killExecutor(first)

    def open_stores(self) -> dict[str, int]:
        """Return the number of open stores by executor."""
        request = getattr(self._jvm.io.holdfast.spark.rpc, "ExecutorRequest$ListStores")
        wanted = request(self._folder)
        driver = self._jvm.io.holdfast.spark.driver.HoldfastDriver.running()
        writers = driver.terms().writers(self._folder).values()
        # Terms of an earlier run of the query name the same executors.
        return {
            writer.executorId(): len(writer.link().ask(wanted).get().stores()) for writer in writers
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--query", choices=QUERIES, default="counts")
    parser.add_argument("--keys", type=int, default=2_000, help="of a batch")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    folder: Path = args.folder
    (folder / "events").mkdir()
    (folder / "input").mkdir()
    session = holdfast.configure(builder(args.master, folder / "warehouse"))
    session = session.config("spark.eventLog.dir", (folder / "events").as_uri())
    for name, value in DYNAMIC.items():
        session = session.config(f"spark.{name}", value)
    spark = configured(session, args.conf).getOrCreate()

    logs = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    logs.core.config.Configurator.setLevel(f"{DRIVER}.Rebalancer", logs.Level.DEBUG)
    shape, mode = QUERIES[args.query]
    batch = 0

    def feed() -> None:
        nonlocal batch
        # Half of the keys of a batch are in the next one, too.
        first = batch * args.keys // 2
        rows = [{"key": key, "batch": batch} for key in range(first, first + args.keys)]
        write_batch(folder / "input", batch, rows)
        batch += 1

    found: list[Any] = []

    def keep(rows: DataFrame, _: int) -> None:
        if mode == "complete":
            found.clear()
        found.extend(rows.collect())

    def start() -> Any:
        return (
            shape(source(spark, folder / "input"))
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(keep)
            .start()
        )

    feed()
    query = start()
    executors = Executors(spark, folder / "checkpoint")
    report: dict[str, Any] = {"phases": []}
    ms: dict[int, int] = {}
    for count in EXECUTORS:
        executors.become(count)
        if count == RESTART_WITH:
            query.stop()
            query = start()
        first = max(ms, default=-1) + 1
        for _ in range(BATCHES_EACH):
            feed()
            query.processAllAvailable()
        for one in query.recentProgress:
            ms[one["batchId"]] = one["durationMs"]["triggerExecution"]
        phase = {"executors": count, "first": first, "last": max(ms)}
        report["phases"].append({**phase, "stores": executors.open_stores()})
    query.stop()
    undisturbed = shape(spark.read.parquet(str(folder / "input"))).collect()
    report["rows"] = len(undisturbed)
    report["equal"] = canonical(found) == canonical(undisturbed)
    spark.stop()
    report["tasks"] = state_tasks(folder / "events")
    (folder / "report.json").write_text(json.dumps(report))
    for number, tasks in report["tasks"].items():
        print(f"batch {number}: {ms[number]} ms, tasks by executor {tasks}")


def state_tasks(events: Path) -> dict[int, dict[str, int]]:
    """Return by batch the number of finished tasks with state of each executor."""
    batches: dict[int, int] = {}
    tasks: dict[int, Counter[str]] = {}
    (log,) = events.iterdir()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            # The shuffle's other side: as many tasks as the state has partitions.
            number = event["Properties"].get("streaming.sql.batchId")
            if number is not None and info["Number of Tasks"] == PARTITIONS:
                batches[info["Stage ID"]] = int(number)
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in batches:
            number = batches[event["Stage ID"]]
            tasks.setdefault(number, Counter())[event["Task Info"]["Executor ID"]] += 1
    return {number: dict(sorted(tasks[number].items())) for number in sorted(tasks)}


if __name__ == "__main__":
    main()
