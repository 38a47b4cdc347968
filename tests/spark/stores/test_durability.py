"""A physical file that cannot be made durable fails its batch, and the replay is exact."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import environment, preloadable, program
from support.spark.faults import (
    ALL_EXECUTORS,
    CLUSTER,
    LOCAL,
    ONE_FILE,
    WAIT_SECONDS,
    Job,
    World,
    freeze,
)
from support.spark.queries import STATE, write_batch
from support.spark.state_files import merged_files

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
STAND_IN = pytest.mark.parametrize("object_world", ["objects"], indirect=True)


def test_a_failed_sync_fails_the_batch_and_the_replay_is_right(tmp_path: Path) -> None:
    library = preloadable(HERE / "failing_sync.c", tmp_path)
    (tmp_path / "input").mkdir()
    for batch in range(3):
        write_batch(tmp_path / "input", batch, [{"key": key} for key in range(20)])
    done = subprocess.run(
        [sys.executable, program("spark/failing_sync_job.py"), str(tmp_path)],
        env=environment(
            {"LD_PRELOAD": str(library), "FAILING_SYNC_MARKER": str(tmp_path / "marker")}
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "could not be made durable" in done.stdout, done.stdout
    assert "committed: False" in done.stdout
    for batch in range(3):
        rows = [(key, batch + 1) for key in range(20)]
        assert (tmp_path / "output" / f"{batch}.txt").read_text() == repr(rows)


def executor_id(process: int) -> str:
    """What Spark calls an executor."""
    words = Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("--executor-id") + 1]


def start_and_freeze_an_executor(world: World, **conf: str) -> tuple[Job, str]:
    """Stops a job when all tasks of batch 2 have ended, and stalls one of its executors for good;
    returns the job and the id of the executor."""
    world.feed(4)
    world.arm("publish", nth=2)
    job = world.start(CLUSTER, **ONE_FILE, **ALL_EXECUTORS, **conf)
    job.wait_until_stopped_at("publish")
    stalled = job.two_executors()[0]
    name = executor_id(stalled)
    freeze(stalled)
    return job, name


def replay(world: World, spark: SparkSession) -> None:
    """Starts the query again, and checks all there is."""
    assert world.last_committed() == 1
    world.start(LOCAL, **ONE_FILE).finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
@STAND_IN
def test_an_executor_that_does_not_answer_in_time_fails_the_batch_and_is_named(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    job, stalled = start_and_freeze_an_executor(world, spark__rpc__askTimeout="10s")
    world.go("publish")
    said = job.wait_until_failed()
    failure = re.search(
        r"The batch was not committed: physical files in (.*) could not be made durable:"
        r" ([0-9a-f-]+\.hf) up to offset \d+ \(executor (\d+) does not answer\)",
        said,
    )
    assert failure is not None, said[-4000:]
    folder, file, executor = failure.groups()
    assert folder == f"{world.uri}/state/holdfast"
    assert file not in [path.name for path in merged_files(world.checkpoint)]
    assert executor == stalled
    job.kill()
    replay(world, spark)


@pytest.mark.full
@STAND_IN
def test_a_query_that_is_stopped_while_an_executor_does_not_answer_ends_without_an_error(
    object_world: World, spark: SparkSession
) -> None:
    world = object_world
    job, _ = start_and_freeze_an_executor(world)
    before = len(merged_files(world.checkpoint))
    world.go("publish")
    # Both are asked at once, and the other one has answered.
    job.wait_until("sealed", lambda: len(merged_files(world.checkpoint)) > before)
    (world.control / "stop").touch()
    assert job.process.wait(timeout=WAIT_SECONDS) == 0, job.text()[-4000:]
    job.kill()
    replay(world, spark)


@pytest.fixture
def idle(object_world: World) -> tuple[World, Job]:
    """A job in the middle of batch 1: all its stores are closed, and so its manager will be."""
    object_world.feed(3)
    object_world.arm("publish", nth=1)
    job = object_world.start(LOCAL, **ONE_FILE, **{STATE + "unloadOnCommit": "true"})
    job.wait_until_stopped_at("publish")
    return object_world, job


@pytest.mark.full
@STAND_IN
def test_a_batch_whose_files_the_executor_sealed_when_it_was_idle_is_committed(
    idle: tuple[World, Job], spark: SparkSession
) -> None:
    world, job = idle
    assert len(merged_files(world.checkpoint)) == 1
    # The driver does not ask for it before the batch is published.
    job.wait_until("idle", lambda: len(merged_files(world.checkpoint)) == 2)
    world.go("publish")
    job.finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
@STAND_IN
def test_a_batch_whose_files_an_idle_executor_could_not_seal_fails(
    idle: tuple[World, Job], spark: SparkSession
) -> None:
    world, job = idle
    folder = world.checkpoint / "state" / "holdfast"
    aside = folder.rename(world.folder / "aside")
    folder.write_text("in the way")
    job.wait_until("idle", lambda: "could not be made durable" in job.text())
    folder.unlink()
    aside.rename(folder)
    world.go("publish")
    said = job.wait_until_failed()
    assert "(a sync failed on executor driver)" in said
    assert not world.is_committed(1)
    job.kill()
    world.start(LOCAL, **ONE_FILE).finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)
