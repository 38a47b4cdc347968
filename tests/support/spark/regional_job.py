"""A regional pipeline that the fault tests kill. Run as a program.

With ``--kill POINT`` it kills its own process group, JVM included, at that point in batch ``--at``
(-1: while it drains). With ``--kill-one executor`` or ``worker`` it continues itself, and one such
process is killed in each batch, at a point of its own (:data:`DEATHS_OF_OTHERS`). With
``--kill-executors`` the executor of one region is killed once in every third batch, in the middle
of it. In every odd batch one region fails once. With ``--kafka`` the first start copies the input
files to a Kafka topic, which is read instead of them. Checkpoints and output may be on another file
system.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.files.reached import HadoopPath
from holdfast.regions.coordinator import (
    Acked,
    AckedTogether,
    CheckpointCoordinator,
    Declined,
    TasksEnded,
)
from holdfast.regions.driver import pipeline_driver as driver
from holdfast.regions.driver.attempts import Attempts
from holdfast.regions.files import folders
from holdfast.regions.runners.spark.runner import SparkRunner
from support.regional import pipelines
from support.regional.pipelines import COUNTED, RunningCount
from support.spark import processes
from support.spark.kafka_topic import feed, topic_source
from support.spark.queries import builder
from support.spark.regional_input import TASKS, regional_source

#: In the order of a batch. The actions of the coordinator have their names.
POINTS = (
    "SnapshotCoordinators",
    "tasks",
    "first-answer",
    "last-answer",
    "answered",
    "metadata",
    "CommitSinks",
    "second-link",
    "sweep",
    "DropMetadata",
    "NotifyManagers",
    "SettleEvents",
    "NotifyCoordinator",
    "Ended",
    "planned",
    "done",
)
#: All but the one between two logs of Spark, which stops Spark by a pipe in a local folder.
POINTS_OF_OTHERS = tuple(point for point in POINTS if point != "planned")
REGIONS = [f"r{number:02}" for number in range(6)]
DRAINING = -1
#: The point of each batch at which an executor or a worker dies; the first batch starts them.
DEATHS_OF_OTHERS = {**dict(enumerate(POINTS_OF_OTHERS, start=1)), DRAINING: "metadata"}
Files = Sequence[tuple[str, str, int]]


def batches_of(deaths: int) -> int:
    """A batch for each death and some more. The last one is odd, so there is something to drain."""
    return deaths + 1 + (deaths + 1) % 2


#: Columns of the side output, which gets every row.
IDS = pa.schema([("region", pa.string()), ("id", pa.int64())])
#: Too much for the metadata, so that there are segments.
BALLAST = 300
#: Bound on the wait for an executor or a worker to kill.
WAIT_SECONDS = 120


class Numbering(holdfast.OperatorCoordinator):
    """Sends the next number to all regions before each batch; learns that each region took it."""

    supports_fallback = True

    def start(self, gateway: holdfast.EventGateway) -> None:
        self.gateway = gateway

    def begin_batch(self, checkpoint: int) -> None:
        self.number += 1
        for region in self.gateway.regions:
            self.gateway.send(region, b"%d" % self.number)

    def handle_event(self, region: str, event: bytes) -> None:
        # A region is in no checkpoint before its first batch.
        wanted = self.taken.get(region, 1) + 1
        if int(event) != wanted:
            raise AssertionError(f"{region} took {event!r} in place of {wanted}")
        self.taken[region] = wanted

    def checkpoint(self, checkpoint: int) -> bytes:
        return json.dumps([self.number, self.taken]).encode()

    def reset(self, snapshot: bytes | None) -> None:
        self.number, self.taken = (0, {}) if snapshot is None else json.loads(snapshot)


class Ballasted(RunningCount):
    """Has states in segments and in the metadata; a region fails once in every odd batch.

    If a batch is a file, the event with its number precedes its rows.
    """

    def __init__(self, marks: Path, *, by_file: bool) -> None:
        self.marks = str(marks)
        self.by_file = by_file

    def open(self, ctx: holdfast.OperatorContext) -> None:
        super().open(ctx)
        self.emit, self.send_event = ctx.emit, ctx.send_event
        self.event = ctx.state.value("event", 1)
        self.ballast = ctx.state.array("ballast", shape=(BALLAST,), dtype="int64")
        self.keys = ctx.state.table("keys", key={"id": pa.int64()}, value={"key": pa.int64()})

    def on_event(self, event: bytes) -> None:
        self.event.value = int(event)
        self.send_event(event)

    def check_table(self, batch: pa.RecordBatch) -> None:
        if len(self.keys) != self.rows.value or any(self.keys.contains(batch).to_pylist()):
            raise AssertionError(f"{len(self.keys)} keys do not go with {self.rows.value} rows")
        self.keys.upsert(batch)
        if self.keys.get(batch).column("key") != batch.column("key"):
            raise AssertionError("the table has other rows than were put in")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = {row_id // 1000 + 1 for row_id in batch.column("id").to_pylist()}
        if self.by_file and numbers != {self.event.value}:
            raise AssertionError(f"rows of batches {numbers} came behind event {self.event.value}")
        if not (self.ballast == self.rows.value).all():
            raise AssertionError(f"ballast {self.ballast[:4]} does not go with {self.rows.value}")
        self.check_table(batch)
        number = batch.column("id")[0].as_py() // 1000
        failing = REGIONS[number % len(REGIONS)]
        mark = Path(self.marks) / str(number)
        if number % 2 and self.region == failing and not mark.exists():
            mark.touch()
            raise RuntimeError("in trouble, once")
        self.ballast += batch.num_rows
        self.emit("ids", batch.select(["region", "id"]))
        yield from super().process(batch)


class ExecutorKilling(Ballasted):
    """Kills the JVM that this worker belongs to while r03 is in the middle of every third batch."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        number = batch.column("id")[0].as_py() // 1000
        mark = Path(self.marks) / f"executor-{number}"
        if number % 3 == 2 and self.region == "r03" and not mark.exists():
            mark.touch()
            # Executor, daemon, worker: the second field after the name is the parent.
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        yield from super().process(batch)


class Death:
    """Points of ends, one for each of some batches."""

    batch: ClassVar[int | None] = None

    def __init__(self, points: Mapping[int, str], kill: Callable[[str], None]) -> None:
        self.points = dict(points)
        self.kill = kill

    def passes(self, point: str) -> None:
        """End a process here, if this is the place."""
        if Death.batch is not None and self.points.get(Death.batch) == point:
            del self.points[Death.batch]
            self.kill(point)

    def lies_before(self, owner: Any, name: str, point: str, nth: int = 1) -> None:
        """Put a point before the n-th call of a batch."""
        calls = {}
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            calls[Death.batch] = calls.get(Death.batch, 0) + 1
            if calls[Death.batch] == nth:
                self.passes(point)
            return real(*arguments, **options)

        setattr(owner, name, wrapped)


def kill_this_application(point: str) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def kill_one(kind: str, marks: Path, point: str) -> None:
    """Kill the oldest executor or worker, and leave a mark."""
    session, deadline = os.getsid(0), time.monotonic() + WAIT_SECONDS
    find = {"executor": processes.executors, "worker": processes.workers}[kind]
    while not (found := find(session)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {kind} to kill at {point}")
        time.sleep(0.05)
    os.kill(found[0], signal.SIGKILL)
    (marks / f"{kind}-{Death.batch}-{point}").touch()


def install(death: Death) -> None:
    """Put the points at the steps of the driver."""
    if "DropMetadata" in death.points.values():
        # On an object store not every batch reaches that point.
        folders.DROPPED_TOGETHER = 1  # type: ignore[misc]
    run_batch, finish = driver.PipelineDriver.run_batch, driver.PipelineDriver.finish

    def dated_run_batch(self: Any, batch_id: int, *arguments: Any, **options: Any) -> None:
        Death.batch = batch_id
        if death.points.get(batch_id + 1) == "planned":
            die_between_the_logs(self.folders.stream, batch_id + 1)
        run_batch(self, batch_id, *arguments, **options)
        death.passes("done")

    def dated_finish(self: Any) -> None:
        Death.batch = DRAINING
        finish(self)
        death.passes("done")

    driver.PipelineDriver.run_batch = dated_run_batch  # type: ignore[method-assign]
    driver.PipelineDriver.finish = dated_finish  # type: ignore[method-assign]

    execute, handle = Attempts._execute, CheckpointCoordinator.handle
    answered = {}

    def named_execute(self: Any, action: Any, *arguments: Any) -> Any:
        death.passes(type(action).__name__)
        return execute(self, action, *arguments)

    def watching_handle(self: Any, event: Any) -> Any:
        if isinstance(event, TasksEnded):
            death.passes("answered")
        if isinstance(event, Acked | AckedTogether | Declined):
            count = len(event.acks) if isinstance(event, AckedTogether) else 1
            before = answered.get(Death.batch, 0)
            answered[Death.batch] = before + count
            if before == 0:
                death.passes("first-answer")
            if before < len(REGIONS) <= before + count:
                death.passes("last-answer")
        return handle(self, event)

    Attempts._execute = named_execute  # type: ignore[method-assign]
    CheckpointCoordinator.handle = watching_handle  # type: ignore[method-assign]
    death.lies_before(SparkRunner, "run", "tasks")
    death.lies_before(Attempts, "_publish", "metadata")
    death.lies_before(os, "link", "second-link", nth=2)
    publish = HadoopPath.publish

    def publish_one_first(self: HadoopPath, files: Files) -> None:
        publish(self, files[:1])
        death.passes("second-link")
        publish(self, files)

    HadoopPath.publish = publish_one_first  # type: ignore[method-assign]
    death.lies_before(holdfast.regions.sinks.ParquetSink, "sweep", "sweep")


def rest_between_batches(seconds: float) -> None:
    """Let executors be idle after each batch."""
    run_batch = driver.PipelineDriver.run_batch

    def run_and_rest(self: Any, *arguments: Any, **options: Any) -> None:
        run_batch(self, *arguments, **options)
        time.sleep(seconds)

    driver.PipelineDriver.run_batch = run_and_rest  # type: ignore[method-assign]


def die_between_the_logs(stream: Path, batch: int) -> None:
    """End when the source has noted files for a batch and Spark is about to write its offsets.

    Spark first looks for them, and so waits for content of a pipe.
    """
    os.mkfifo(stream / "offsets" / str(batch))
    noted = stream / "sources" / "0" / str(batch)

    def watch() -> None:
        while not noted.exists():
            time.sleep(0.01)
        (stream / "offsets" / str(batch)).unlink()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def source(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The source of the pipeline."""
    files: Path = args.folder / "in"
    if args.kafka is None:
        return regional_source(spark, f"file:{files}")
    fed = args.folder / "marks" / "fed"
    if not fed.exists():
        for batch in sorted(files.iterdir()):
            feed(spark.read.parquet(str(batch)).sort("id"), args.kafka)
        fed.touch()
    return topic_source(spark, args.kafka, rows_per_batch=args.rows_per_batch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kill", choices=POINTS)
    parser.add_argument("--at", type=int, default=0, help="batch to die in; -1: while draining")
    parser.add_argument("--kill-one", choices=("executor", "worker"))
    parser.add_argument("--kill-executors", action="store_true")
    parser.add_argument("--kafka", metavar="SERVERS")
    parser.add_argument("--pause", type=float, default=0, help="seconds between two batches")
    parser.add_argument("--checkpoint", help="path or URI (default: in the folder)")
    parser.add_argument("--output", help="path or URI (default: in the folder)")
    parser.add_argument("--ids", help="the same for the side output")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--rows-per-batch", type=int, help="to read from Kafka")
    args = parser.parse_args()
    # Python workers do not find this module: its classes are pickled by value.
    cloudpickle.register_pickle_by_value(pipelines)
    folder: Path = args.folder
    (folder / "marks").mkdir(exist_ok=True)
    if args.pause:
        rest_between_batches(args.pause)
    if args.kill is not None:
        install(Death({args.at: args.kill}, kill_this_application))
    if args.kill_one is not None:
        install(Death(DEATHS_OF_OTHERS, partial(kill_one, args.kill_one, folder / "marks")))
    operator = ExecutorKilling if args.kill_executors else Ballasted
    settings = (
        builder(args.master, folder / "warehouse")
        .config("spark.executor.memory", "1g")
        # No batch begins before all executors run, so that each has a part of it.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    )
    for setting in args.settings:
        settings = settings.config(*setting.split("=", 1))
    spark = holdfast.configure(settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        holdfast.regional(source(spark, args), region_by="region")
        .apply(
            operator(folder / "marks", by_file=args.kafka is None),
            schema=COUNTED,
            name="count",
            coordinator=Numbering(),
        )
        .side("ids", schema=IDS)
        .write_parquet(args.ids or folder / "ids")
        .write_parquet(args.output or folder / "out")
        .start(
            args.checkpoint or folder / "ckpt",
            trigger={"availableNow": True},
            num_retained=1,
            max_consecutive_failures=10,
            max_file_bytes=TASKS * BALLAST,
        )
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
