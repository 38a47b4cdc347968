"""What is on the machine after kill -9 where state lies over runs behind a local cache: nothing.

The cache of an executor is a file without a name in Spark's folder for local files: the system
frees it with the process. So it does with its socket, which has no file.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from harness.process import running_in_session
from support.spark.cache_job import never_had_a_name
from support.spark.faults import ALL_EXECUTORS, CLUSTER, Job, World, input_without, rows_of
from support.spark.queries import EVICTING, STATE

# Two Spark applications in a row: for when the machine is busy.
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

BATCHES = 6
#: Keys of the first input alone: from then on they are in runs.
QUIET = sorted({row["key"] for row in rows_of(0)})[::5]

COLD = {
    **EVICTING,
    "spark.sql.streaming.maxBatchesToRetainInMemory": "0",
    STATE + "holdfast.localCacheBytes": "64m",
}


class Machine(NamedTuple):
    """The folders that a job has beside its checkpoint."""

    local: Path
    temporary: Path

    def settings(self) -> dict[str, str]:
        """Settings of Spark with which a job uses them."""
        option = f"-Djava.io.tmpdir={self.temporary}"
        options = {f"spark.{name}.extraJavaOptions": option for name in ("driver", "executor")}
        return {"spark.local.dir": str(self.local), **options}

    def named(self) -> list[Path]:
        """Files of Holdfast there that have a name."""
        return [path for folder in self for path in folder.rglob("*holdfast*")]

    def caches(self, session: int) -> dict[int, int]:
        """Bytes on the disk of files that never had a name below the local folder, by process."""
        found: dict[int, int] = {}
        for process in running_in_session(session):
            for link in open_files(process):
                with suppress(FileNotFoundError):
                    file = os.readlink(link)
                    if file.startswith(f"{self.local}/") and never_had_a_name(file):
                        found[process] = link.stat().st_blocks * 512
        return found


def open_files(process: int) -> Iterator[Path]:
    """Links to the files that a process has open, if it is still there."""
    with suppress(FileNotFoundError, ProcessLookupError):
        yield from Path(f"/proc/{process}/fd").iterdir()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "local", tmp_path / "tmp")
    for folder in made:
        folder.mkdir()
    return made


def cold_reads(world: World) -> int:
    """Reads of runs that batches took so far, as far as the job saw them."""
    seen = map(json.loads, (world.folder / "progress.jsonl").read_text().splitlines())
    return sum(operator["customMetrics"]["holdfastColdReads"] for operator in seen)


@pytest.fixture
def cold_job(hdfs_world: World, machine: Machine) -> Job:
    """A job on two executors that both have a cache, in the middle of a batch."""
    world = hdfs_world
    world.settings = COLD | machine.settings()
    world.rows = input_without(QUIET)
    world.feed(BATCHES)
    world.arm("publish", nth=BATCHES - 1)
    job = world.start(CLUSTER, "--complete", **ALL_EXECUTORS)
    job.wait_until_stopped_at("publish")
    executors = job.two_executors()
    caches = machine.caches(job.process.pid)
    assert sorted(caches) == executors
    assert all(caches.values())
    assert machine.named() == []
    return job


def test_a_killed_executor_leaves_nothing_of_its_cache_and_the_query_goes_on(
    hdfs_world: World, machine: Machine, cold_job: Job, spark: SparkSession
) -> None:
    world, job = hdfs_world, cold_job
    killed, other = job.two_executors()
    os.kill(killed, signal.SIGKILL)
    job.wait_until("an executor gone", lambda: killed not in job.executors())
    # Its connections go a moment before its files; nor has a Python worker of it the file open.
    job.wait_until("its cache gone", lambda: list(machine.caches(job.process.pid)) == [other])
    world.go("publish")
    world.settle(job, spark)
    assert cold_reads(world) > 0
    assert machine.named() == []


def test_a_killed_driver_leaves_nothing_of_the_caches_and_the_next_one_goes_on(
    hdfs_world: World, machine: Machine, cold_job: Job, spark: SparkSession
) -> None:
    world = hdfs_world
    # Executors of a driver that is gone end by themselves; these do not come to that.
    cold_job.kill()
    assert machine.named() == []
    world.go("publish")
    world.settle(world.start(CLUSTER, "--complete", **ALL_EXECUTORS), spark)
    assert cold_reads(world) > 0
    assert machine.named() == []
