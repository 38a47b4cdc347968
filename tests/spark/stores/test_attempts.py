"""More than one attempt at a batch: retried tasks and stages, duplicates, stalled machines."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from support.spark.faults import CLUSTER, WAIT_SECONDS, Job, World, freeze
from support.spark.processes import status
from support.spark.state_files import merged_files

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)


def parent(process: int) -> int:
    return int(status(Path(f"/proc/{process}/stat"))[1])


def executor_of(job: Job, process: int) -> int:
    """The executor that started a Python worker."""
    executors = job.executors()
    while process not in executors:
        process = parent(process)
        assert process > 1
    return process


def test_a_task_that_fails_after_its_commit_is_retried(world: World, spark: SparkSession) -> None:
    world.feed(3)
    job = world.start("local[2,4]", "--mapper", "fail-first")
    job.wait_until_processed()
    assert "the first attempt of batch 2 fails" in job.text()
    world.settle(job, spark)


@pytest.mark.full
def test_a_stage_is_retried_when_its_shuffle_files_are_lost(
    world: World, spark: SparkSession
) -> None:
    world.feed(4)
    world.arm("task", nth=2)
    job = world.start(CLUSTER, "--stages", "--mapper", "pause")
    # Partition 1 is committed. With its executor go half of the rows that its retry needs.
    worker = job.wait_until_stopped_at("task")
    os.kill(executor_of(job, worker), signal.SIGKILL)
    job.wait_until_processed()
    assert "FetchFailed" in job.text()
    world.settle(job, spark)


@pytest.fixture
def two_hosts(tmp_path: Path, world: World) -> Iterator[str]:
    """A standalone cluster: two worker processes, with addresses of their own for speculation."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]]
    for host in ("127.0.0.2", "127.0.0.3"):
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / host), master]
        commands.append([f"{deploy}.worker.Worker", "--host", host, "--port", "0", *work])
    processes = []
    try:
        for command in commands:
            with (tmp_path / f"{command[0]}-{len(processes)}.txt").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [str(spark_class), *command, "--webui-port", "0"],
                        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | world.environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        yield master
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=WAIT_SECONDS)


@pytest.mark.full
def test_a_stalled_machine_wakes_up_after_its_partitions_moved(
    world: World, spark: SparkSession, two_hosts: str
) -> None:
    world.feed(6)
    world.arm("before-append", nth=4)
    job = world.start(
        two_hosts,
        spark__executor__heartbeatInterval="1s",
        spark__network__timeout="8s",
        spark__network__timeoutInterval="1s",
        spark__shuffle__io__maxRetries="1",
        spark__shuffle__io__retryWait="100ms",
    )
    executor = job.wait_until_stopped_at("before-append")
    # With its worker, which would kill it.
    worker = parent(executor)
    freeze(worker)
    freeze(executor)
    world.go("before-append")
    job.wait_until_processed()
    late = [path.name for path in merged_files(world.checkpoint)]
    # All input is processed: no other writer appends now.
    world.arm("after-append")
    os.kill(executor, signal.SIGCONT)
    assert job.wait_until_stopped_at("after-append") == executor
    world.go("after-append")
    os.kill(worker, signal.SIGCONT)
    world.go_on_until_reclaimed(job, late)
    job.finish()
    world.assert_rows()
    world.assert_no_file_is_missing(spark)


@pytest.mark.full
def test_the_duplicate_of_a_slow_attempt_changes_nothing(
    world: World, spark: SparkSession, two_hosts: str
) -> None:
    world.feed(5)
    job = world.start(
        two_hosts,
        "--mapper",
        "slow-first",
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__minTaskRuntime="100ms",
        spark__speculation__quantile="0.5",
    )
    job.wait_until_processed()
    # The slow attempt of batch 2 committed its state, and waited for a duplicate that did as well.
    assert (world.control / "duplicate").exists()
    # The executor of the duplicates may have no task from here on, and closes its manager later.
    world.settle(job, spark, idle_executors=True)
