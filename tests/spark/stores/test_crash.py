"""kill -9 of driver and executor: after a restart the rows equal an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from support import environment, program
from support.spark import processes
from support.spark.queries import EVICTING, write_batch
from support.spark.state_files import commit_ids, delta_runs

pytestmark = pytest.mark.versions

JOB = program("spark/crash_job.py")
BATCHES = 5
WAIT_SECONDS = 150
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"

#: Nothing stays in memory, and every batch is followed by maintenance.
COLD = {**EVICTING, "spark.sql.streaming.maxBatchesToRetainInMemory": "0"}
#: Rows of batches. Four changelogs make a run, and those of the later ones are so small that it
#: lies above that of the first ones. Commits build on a run two batches later.
FEWER = (20_000, 2_000, 1_000, 500, 250, *[60] * 7, 30, 30)
FEWER_BEFORE = 12


def rows_of(batch: int) -> list[dict[str, Any]]:
    return [
        {"key": f"k{(batch * 80 + i) * 7 % 53}", "value": (batch * 80 + i) * 13 % 101}
        for i in range(80)
    ]


INPUT = [rows_of(batch) for batch in range(BATCHES)]


def expected(batches: Sequence[Sequence[dict[str, Any]]] = INPUT) -> dict[str, tuple[int, int]]:
    """What an undisturbed run ends with, computed from the input alone."""
    result: dict[str, tuple[int, int]] = {}
    for rows in batches:
        for row in rows:
            n, s = result.get(row["key"], (0, 0))
            result[row["key"]] = (n + 1, s + row["value"])
    return result


def final_rows(folder: Path, batches: int = BATCHES) -> dict[str, tuple[int, int]]:
    """Last update of every key over the published batches."""
    result: dict[str, tuple[int, int]] = {}
    for batch in range(batches):
        for row in pq.read_table(
            folder / "output" / f"batch={batch}", partitioning=None
        ).to_pylist():
            result[row["key"]] = (row["n"], row["s"])
    return result


class Job:
    """One run of the job in a process group of its own."""

    started: ClassVar[list[Job]] = []

    def __init__(
        self, folder: Path, *, master: str, block: str, at: int = 2, arguments: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.blocked = folder / "control" / "blocked"
        self.blocked.unlink(missing_ok=True)
        self.log = (folder / "log.txt").open("ab")
        arguments = ["--master", master, "--block", block, "--at", str(at), *arguments]
        arguments += ["--input", str(folder / "input"), "--folder", str(folder)]
        self.process = subprocess.Popen(
            [sys.executable, JOB, *arguments],
            cwd=folder,
            env=environment(),
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.started.append(self)

    def tail(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-4000:]

    def wait_until_blocked(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.blocked.exists():
            assert self.process.poll() is None, f"the job ended early:\n{self.tail()}"
            assert time.monotonic() < deadline, f"the job never got there:\n{self.tail()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the driver with everything it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def finish(self) -> None:
        assert self.wait() == 0, self.tail()

    def wait(self) -> int:
        """Exit status, once it has ended."""
        code = self.process.wait(timeout=WAIT_SECONDS)
        self.log.close()
        return code

    def executors(self) -> list[int]:
        return processes.executors(self.process.pid)


@pytest.fixture
def job_folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "input").mkdir()
    yield tmp_path
    # A test that failed half-way leaves no process behind.
    for job in Job.started:
        if job.process.poll() is None:
            job.kill()
    Job.started.clear()


def feed(folder: Path, batches: range) -> None:
    for batch in batches:
        write_batch(folder / "input", batch, rows_of(batch))


@pytest.mark.parametrize(
    ("master", "block", "at"),
    [
        (LOCAL, "tasks", 2),
        # test_fault_points kills at these places as well.
        pytest.param(LOCAL, "before-commit", 2, marks=pytest.mark.full),
        pytest.param(LOCAL, "before-commit", 0, marks=pytest.mark.full),
        pytest.param(CLUSTER, "tasks", 2, marks=pytest.mark.full),
    ],
)
def test_driver_killed_in_the_middle_of_a_batch(
    job_folder: Path, master: str, block: str, at: int
) -> None:
    feed(job_folder, range(BATCHES))
    job = Job(job_folder, master=master, block=block, at=at)
    job.wait_until_blocked()
    job.kill()
    assert not (job_folder / "checkpoint" / "commits" / str(at)).exists()
    Job(job_folder, master=master, block="none").finish()
    assert final_rows(job_folder) == expected()


@pytest.mark.parametrize(
    ("master", "restarted_on"),
    [
        pytest.param(LOCAL, "local[1]", marks=pytest.mark.full),
        pytest.param(CLUSTER, "local-cluster[1,1,1024]", marks=pytest.mark.full),
    ],
)
def test_driver_killed_between_batches_and_restarted_on_another_number_of_executors(
    job_folder: Path, master: str, restarted_on: str
) -> None:
    feed(job_folder, range(3))
    job = Job(job_folder, master=master, block="between")
    job.wait_until_blocked()
    job.kill()
    assert (job_folder / "checkpoint" / "commits" / "2").exists()
    feed(job_folder, range(3, BATCHES))
    Job(job_folder, master=restarted_on, block="none").finish()
    assert final_rows(job_folder) == expected()


@pytest.mark.full
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_another_number_of_executors_goes_on_over_the_runs_that_the_first_ones_left(
    job_folder: Path, before: int, after: int
) -> None:
    def start(executors: int, block: str) -> Job:
        master = f"local-cluster[{executors},1,1024]"
        settings = [f"--conf={key}={value}" for key, value in COLD.items()]
        return Job(job_folder, master=master, block=block, arguments=settings)

    batches = [
        [{"key": f"k{n * 7 % FEWER[0]}", "value": n * 13 % 101} for n in range(count)]
        for count in FEWER
    ]
    for number in range(FEWER_BEFORE):
        write_batch(job_folder / "input", number, batches[number])
    job = start(before, "between")
    job.wait_until_blocked()
    job.kill()
    partitions = commit_ids(job_folder / "checkpoint", FEWER_BEFORE - 1)["0"]
    assert max(delta_runs(store_id) for (store_id,) in partitions) > 1
    for number in range(FEWER_BEFORE, len(batches)):
        write_batch(job_folder / "input", number, batches[number])
    start(after, "none").finish()
    assert final_rows(job_folder, len(batches)) == expected(batches)


@pytest.mark.full
def test_executor_killed_in_the_middle_of_a_batch(job_folder: Path) -> None:
    feed(job_folder, range(BATCHES))
    job = Job(job_folder, master=CLUSTER, block="task-once")
    job.wait_until_blocked()
    executors = job.executors()
    assert len(executors) == 2
    # Both executors hold committed partitions of batch 2 in open files; one of them dies.
    os.kill(executors[0], signal.SIGKILL)
    (job_folder / "control" / "go").touch()
    job.finish()
    assert final_rows(job_folder) == expected()
