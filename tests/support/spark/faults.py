"""Parts that fault tests share: jobs to stop and kill, their input and their expected rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from harness.process import kill_session
from support import environment, program
from support.spark import processes
from support.spark.object_stores import Store
from support.spark.processes import status
from support.spark.queries import STATE, write_batch
from support.spark.state_files import Segment, commit_ids, lineage, merged_files

POINTS_SOURCE = Path(__file__).with_name("fault_points.c")
WAIT_SECONDS = 200
ROWS, KEYS = 80, 53
# New base images are written every few batches.
BATCHES_BETWEEN_CLEAN_UPS = 10
MAX_BATCHES_TO_RECLAIM = 60
# An executor closes a manager 60 to 90 s after maintenance has unloaded its last store.
IDLE_SECONDS = 180
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
#: No batch begins before all executors run, so that each has a part of it.
ALL_EXECUTORS = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
#: No file is ever full.
ONE_FILE = {STATE + "holdfast.maxFileBytes": "33554432"}
#: Only batches write: no base images.
ONLY_BATCHES = ONE_FILE | {STATE + "minDeltasForSnapshot": "100"}
#: Points of fault_points.c: writes of tasks and maintenance, and on the driver.
PHASES = ("before", "torn", "after")
WRITES = [f"{phase}-{what}" for what in ("append", "seal", "image") for phase in PHASES]
DRIVER = ["before-entry", "after-entry", "before-delete", "after-delete"]
#: Partitions of fault_job.py.
PARTITIONS = 3
Rows = dict[str, list[int]]
Input = Callable[[int], list[dict[str, Any]]]


def rows_of(batch: int) -> list[dict[str, Any]]:
    """One input: keys repeat within and across inputs."""
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    return [{"key": f"k{n * 7 % KEYS}", "value": n * 13 % 101} for n in numbers]


def input_without(quiet: Collection[str]) -> Input:
    """Like :func:`rows_of`, but only the first input has these keys."""
    busy = sorted({row["key"] for row in rows_of(0)} - set(quiet))

    def rows(batch: int) -> list[dict[str, Any]]:
        if batch == 0:
            return rows_of(0)
        return [row | {"key": busy[n % len(busy)]} for n, row in enumerate(rows_of(batch))]

    return rows


def states(inputs: int, rows: Input = rows_of) -> list[Rows]:
    """State of an undisturbed run after each input.

    The batch that ends with an input emits it, too, if every input has every key, or in complete
    mode.
    """
    state: Rows = {}
    result = []
    for number in range(inputs):
        for row in rows(number):
            n, s = state.get(row["key"], [0, 0])
            state[row["key"]] = [n + 1, s + row["value"]]
        assert len(state) == KEYS
        result.append(dict(state))
    return result


class World:
    """One checkpoint with its input, output and control folder, and the jobs that ran on it."""

    def __init__(self, folder: Path, points: Path) -> None:
        self.folder = folder
        self.control = folder / "control"
        #: Makes fault_points.c part of a process and of its children.
        self.environment = {"LD_PRELOAD": str(points), "FAULT_POINTS": str(self.control)}
        self.checkpoint = folder / "checkpoint"
        self.uri = str(self.checkpoint)
        self.settings: dict[str, str] = {}
        self.fed = 0
        self.rows: Input = rows_of
        self.jobs: list[Job] = []
        for name in ("input", "output", "control"):
            (folder / name).mkdir(parents=True)

    def move_to(self, store: Store) -> None:
        """Lets the jobs have their checkpoint in a store."""
        self.checkpoint = store.folder
        self.uri = store.uri
        self.settings = store.settings
        self.environment |= store.environment

    def feed(self, batches: int) -> None:
        """Adds input for a number of batches."""
        for batch in range(self.fed, self.fed + batches):
            write_batch(self.folder / "input", batch, self.rows(batch))
        self.fed += batches

    def start(self, master: str, *arguments: str, **conf: str) -> Job:
        """Starts a job; ``__`` in the name of a setting is a dot."""
        (self.control / "stop").unlink(missing_ok=True)
        values = self.settings | {key.replace("__", "."): value for key, value in conf.items()}
        settings = [f"--conf={key}={value}" for key, value in values.items()]
        where = ["--master", master, "--checkpoint", self.uri]
        job = Job(self, [*where, *arguments, *settings])
        self.jobs.append(job)
        return job

    def arm(
        self, point: str, action: str = "stop", nth: int = 1, *, partition: int | None = None
    ) -> None:
        """Arms a point, see fault_points.c and ``fault_job.pause``."""
        for what in ("reached", "go", "claimed", "passed"):
            (self.control / f"{what}.{point}").unlink(missing_ok=True)
        staged = self.control / "staged"
        staged.write_text(f"{action} {nth}" + ("" if partition is None else f" {partition}"))
        staged.rename(self.control / f"arm.{point}")

    def disarm(self) -> None:
        """Clears armed and reached points."""
        for pattern in ("arm.*", "claimed.*", "reached.*", "go.*", "passed.*"):
            for path in self.control.glob(pattern):
                path.unlink()

    def go(self, point: str) -> None:
        """Lets the process at a point continue."""
        (self.control / f"go.{point}").touch()

    def passes(self, point: str) -> int:
        """The number of times that processes passed a point armed with ``count``."""
        passed = self.control / f"passed.{point}"
        return passed.stat().st_size if passed.exists() else 0

    def is_committed(self, batch: int) -> bool:
        return (self.checkpoint / "commits" / str(batch)).exists()

    def output(self, batch: int) -> Rows:
        """Rows that a batch emitted."""
        rows: Rows = json.loads((self.folder / "output" / f"{batch}.json").read_text())
        return rows

    def is_without_input(self, batch: int) -> None:
        """Notes a batch that no job runs: it has the rows of the batch before it."""
        before = (self.folder / "output" / f"{batch - 1}.json").read_text()
        (self.folder / "output" / f"{batch}.json").write_text(before)

    def inputs(self, batch: int) -> int:
        """Inputs that are counted up to a batch.

        Mostly one more than its number, but Spark's file source puts two into one batch after it
        died between its own log and the offset log.
        """
        return sum(n for n, _ in self.output(batch).values()) // ROWS

    def is_processed(self) -> bool:
        """All input is in committed batches."""
        last = self.last_committed()
        return last >= 0 and self.inputs(last) == self.fed

    def assert_rows(self) -> None:
        """Every batch emitted exactly what an undisturbed run emits."""
        undisturbed = states(self.fed, self.rows)
        done = 0
        for batch in range(self.last_committed() + 1):
            inputs = self.inputs(batch)
            assert done < inputs <= self.fed, f"batch {batch}"
            assert self.output(batch) == undisturbed[inputs - 1], f"batch {batch}"
            done = inputs
        assert done == self.fed

    def retained(self) -> list[int]:
        """Batches with an entry in the commit log."""
        names = [path.name for path in (self.checkpoint / "commits").glob("*")]
        return sorted(int(name) for name in names if name.isdigit())

    def last_committed(self) -> int:
        """Newest committed batch, -1 before the first."""
        return max(self.retained(), default=-1)

    def needed_files(self) -> set[str]:
        """Files that hold a segment of a retained batch; each segment is complete."""
        needed = set()
        for batch in self.retained():
            for operator in commit_ids(self.checkpoint, batch).values():
                for store_id in (store for partition in operator for store in partition):
                    for segment in lineage(self.checkpoint, store_id):
                        path = segment.path(self.checkpoint)
                        assert path.stat().st_size >= segment.offset + segment.len, path
                        needed.add(path.name)
        return needed

    def assert_no_file_is_missing(self, spark: SparkSession) -> None:
        """The state of every retained batch can be read, and is correct."""
        undisturbed = states(self.fed, self.rows)
        assert self.retained()
        for batch in self.retained():
            reader = spark.read.format("statestore").option("batchId", batch)
            rows = reader.load(str(self.checkpoint)).select(
                "key.key", F.col("value.count"), F.col("value.sum")
            )
            found = {row[0]: [row[1], row[2]] for row in rows.collect()}
            assert found == undisturbed[self.inputs(batch) - 1], f"batch {batch}"

    def go_on_until_reclaimed(
        self, job: Job, names: Iterable[str], *, idle_executors: bool = False
    ) -> None:
        """Feeds batches until these files are deleted.

        Files that retained batches need after two clean-ups may remain. With ``idle_executors`` it
        continues until executors without tasks have closed their managers, which takes them longer
        than a number of batches.
        """
        wanted = set(names)
        done = self.clean_ups()
        closed = time.monotonic() + (IDLE_SECONDS if idle_executors else 0)
        batches = 0
        while batches < MAX_BATCHES_TO_RECLAIM or time.monotonic() < closed:
            self.feed(1)
            batches += 1
            job.wait_until_processed()
            left = wanted & {path.name for path in merged_files(self.checkpoint)}
            orphans = left - self.needed_files()
            if not left or (not orphans and self.clean_ups() - done >= 2):
                return
        raise AssertionError(f"never reclaimed: {sorted(orphans)}")

    def clean_ups(self) -> int:
        """Committed batches before a clean-up."""
        return (self.last_committed() + 1) // BATCHES_BETWEEN_CLEAN_UPS

    def settle(self, job: Job, spark: SparkSession, *, idle_executors: bool = False) -> None:
        """Continues a job for some batches and ends it; then checks rows and files."""
        before = [path.name for path in merged_files(self.checkpoint)]
        self.go_on_until_reclaimed(job, before, idle_executors=idle_executors)
        job.finish()
        self.assert_rows()
        self.assert_no_file_is_missing(spark)

    def segments(self, partition: int) -> list[Segment]:
        """The segments of a partition's state in the last committed batch."""
        (store_id,) = commit_ids(self.checkpoint, self.last_committed())["0"][partition]
        return lineage(self.checkpoint, store_id)

    def go_on_until(self, job: Job, what: str, happened: Callable[[], bool]) -> None:
        """Feeds batches until an event after a clean-up."""
        for _ in range(MAX_BATCHES_TO_RECLAIM):
            self.feed(1)
            job.wait_until(what, lambda: happened() or self.is_processed())
            if happened():
                return
        raise AssertionError(f"never {what}:\n{job.text()[-4000:]}")

    def end(self) -> None:
        """Ends all processes."""
        for job in self.jobs:
            job.kill()


def freeze(process: int) -> None:
    """Stops a process; on return none of its threads runs."""
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_SECONDS
    threads = Path(f"/proc/{process}/task")
    while {status(thread / "stat")[0] for thread in threads.iterdir()} != {"T"}:
        assert time.monotonic() < deadline, f"process {process} goes on"
        time.sleep(0.01)


class Job:
    """One run of fault_job.py, in a process group of its own."""

    def __init__(self, world: World, arguments: Sequence[str]) -> None:
        self.world = world
        self.log = world.folder / f"log-{len(world.jobs)}.txt"
        command = [sys.executable, program("spark/fault_job.py"), "--folder", str(world.folder)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *arguments],
                cwd=world.folder,
                env=environment(world.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, what: str, happened: Callable[[], bool]) -> None:
        """Waits for an event of this job."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not happened():
            assert self.process.poll() is None, f"ended before {what}:\n{self.text()[-4000:]}"
            assert time.monotonic() < deadline, f"never {what}:\n{self.text()[-4000:]}"
            time.sleep(0.02)

    def wait_until_stopped_at(self, point: str) -> int:
        """Waits for a process at a point; returns its id."""
        reached = self.world.control / f"reached.{point}"
        self.wait_until(f"stopped at {point}", reached.exists)
        return int(reached.read_text())

    def wait_until_processed(self) -> None:
        self.wait_until("all input processed", self.world.is_processed)

    def finish(self) -> None:
        """Lets the job process its input and end."""
        self.wait_until_processed()
        (self.world.control / "stop").touch()
        code = self.process.wait(timeout=WAIT_SECONDS)
        assert code == 0, self.text()[-4000:]

    def wait_until_failed(self) -> str:
        """Waits for the query to fail; returns the job's text."""
        code = self.process.wait(timeout=WAIT_SECONDS)
        assert code != 0, "the job succeeded"
        return self.text()

    def drivers(self) -> list[int]:
        """The JVM of the driver; there is none before it starts."""
        return processes.drivers(self.process.pid)

    def executors(self) -> list[int]:
        return processes.executors(self.process.pid)

    def two_executors(self) -> list[int]:
        """The executors of a job on ``CLUSTER``."""
        executors = self.executors()
        assert len(executors) == 2
        return executors

    def kill_driver(self) -> None:
        """kill -9 of only the driver's JVM: executors notice it later than the test."""
        for process in self.drivers():
            os.kill(process, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        """kill -9 of everything that this job started."""
        # This also kills processes at a point, or stopped ones.
        kill_session(self.process.pid)
        self.process.wait()
