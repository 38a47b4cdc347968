"""Isolation on other file systems and clusters, with crashes at each step and damaged state."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast._core import CommitId
from support.servers import free_port
from support.spark.commands import with_settings
from support.spark.isolation import BAD, BAD_KEYS, partition_of
from support.spark.isolation_runs import (
    SECONDS,
    found,
    job,
    kill,
    log,
    undisturbed,
    wait_for,
    without_bad,
)
from support.spark.mini_hdfs import MiniHdfs
from support.spark.object_stores import S3Server
from support.spark.queries import STATE
from support.spark.standalone import StandaloneCluster
from support.spark.state_files import commit_ids, lineage

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

CLUSTER = ("--master", "local-cluster[2,1,1024]")
PHASES = ("bad:0-6", "half:6-7", "good:7-8")
INPUTS = (range(6), range(6, 7), range(7, 8))


def test_rows_are_parked_on_hdfs(hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = f"{hdfs.uri}/{tmp_path.name}/checkpoint"
    is_ = found(tmp_path / "parked", *CLUSTER, "--checkpoint", checkpoint, *PHASES)
    assert is_ == undisturbed(spark, tmp_path / "whole", INPUTS, "counts")


def test_rows_are_parked_on_s3(s3: S3Server, spark: SparkSession, tmp_path: Path) -> None:
    store = s3.store("parked-rows")
    place = (*CLUSTER, "--checkpoint", store.uri)
    variables = with_settings(store.settings, store.environment)
    is_ = found(tmp_path / "parked", *place, *PHASES, variables=variables)
    assert is_ == undisturbed(spark, tmp_path / "whole", INPUTS, "counts")


@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_rows_are_shown_and_skipped_where_the_checkpoint_is(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    if kind == "hdfs":
        hdfs = request.getfixturevalue("hdfs")
        uri, variables = f"{hdfs.uri}/{tmp_path.name}/checkpoint", {}
    else:
        store = request.getfixturevalue("s3").store("skipped-rows")
        uri, variables = store.uri, with_settings(store.settings, store.environment)
    (partition,) = set(partition_of(spark, set(BAD)).values())
    letters = uri.replace("checkpoint", "letters")
    skip = f'skip --partition {partition} --where "{BAD_KEYS}" --dead-letter {letters} --yes'
    is_ = found(
        tmp_path / "parked",
        *("--checkpoint", uri),
        *("bad:0-6", "run:--rows json", f"run:{skip}", "run:--json", "bad:6-7"),
        variables=variables,
    )
    whole = undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "counts")
    assert is_ == without_bad(whole)
    rows, _, after = json.loads((tmp_path / "parked" / "commands.json").read_text())
    (left,) = json.loads("".join(after))["parked"]
    assert left["rows"] == len(rows) - 3


def test_speculative_twins_of_a_failing_task_do_not_repeat_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    speculation = {
        "": "true",
        ".interval": "50ms",
        ".multiplier": "1.1",
        ".quantile": "0.25",
        ".minTaskRuntime": "100ms",
    }
    settings = [f"--conf=spark.speculation{key}={value}" for key, value in speculation.items()]
    # Spark says which tasks it starts again, but not to a log that has errors alone.
    is_ = found(folder, *CLUSTER, *settings, "--query", "slow", *PHASES)
    assert is_ == undisturbed(spark, tmp_path / "whole", INPUTS, "slow")


@pytest.fixture
def shuffle_service(tmp_path: Path) -> Iterator[tuple[StandaloneCluster, int]]:
    """A cluster of a worker that serves shuffle files of executors that died, and its port."""
    (tmp_path / "cluster").mkdir()
    port = free_port()
    options = f"-Dspark.shuffle.service.enabled=true -Dspark.shuffle.service.port={port}"
    running = StandaloneCluster(
        tmp_path / "cluster", workers=1, variables={"SPARK_WORKER_OPTS": options}
    )
    yield running, port
    running.close()


def test_executors_die_on_a_cluster_whose_shuffle_files_outlive_them(
    shuffle_service: tuple[StandaloneCluster, int], spark: SparkSession, tmp_path: Path
) -> None:
    cluster, port = shuffle_service
    folder = tmp_path / "parked"
    service = (
        "--conf=spark.shuffle.service.enabled=true",
        f"--conf=spark.shuffle.service.port={port}",
        "--conf=spark.executor.memory=512m",
    )
    is_ = found(folder, "--master", cluster.url, *service, "--query", "deadly", *PHASES)
    assert is_ == undisturbed(spark, tmp_path / "whole", INPUTS, "deadly")
    assert "is parked in batch 2 after 2 failures" in log(folder)


#: Points of fault_points.c, and how often a process passes them: in a batch that parks, and in the
#: replay, which is batch 6.
STEPS = [
    ("before-input", 1),
    ("torn-input", 1),
    ("after-input", 2),
    ("before-marker", 1),
    ("after-marker", 1),
    ("before-entry", 3),
    ("after-entry", 4),
    ("before-append", 26),
    ("before-entry", 7),
    ("after-entry", 7),
]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an undisturbed run of the killed jobs finds."""
    phases = [range(6), range(6, 7)]
    return undisturbed(spark, tmp_path_factory.mktemp("whole"), phases, "counts")


@pytest.mark.parametrize(("point", "nth"), STEPS)
def test_a_driver_that_is_killed_at_a_step_goes_on(
    point: str, nth: int, fault_points: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    folder, control = tmp_path / "parked", tmp_path / "control"
    control.mkdir()
    (control / f"arm.{point}").write_text(f"stop {nth}")
    variables = {"LD_PRELOAD": str(fault_points), "FAULT_POINTS": str(control)}
    phases = ("bad:0-6", "good:6-7")
    process = job(folder, *phases, variables=variables)
    wait_for(control / f"reached.{point}", folder, process)
    kill(process)
    # The next run feeds the same files. The bad program must not run a batch of the good one again.
    repaired = (folder / "input" / "batch-00006.parquet").exists()
    left = phases[1:] if repaired else phases
    assert found(folder, "--rerun", "at-least-once", *left) == whole


@pytest.mark.parametrize("point", ["before-input", "torn-input", "after-input", "before-append"])
def test_an_executor_that_is_killed_at_a_step_is_replaced(
    point: str, fault_points: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    folder, control = tmp_path / "parked", tmp_path / "control"
    control.mkdir()
    (control / f"arm.{point}").write_text("stop 1" if "input" in point else "stop 7")
    variables = {"LD_PRELOAD": str(fault_points), "FAULT_POINTS": str(control)}
    process = job(folder, *CLUSTER, "bad:0-6", "good:6-7", variables=variables)
    reached = control / f"reached.{point}"
    wait_for(reached, folder, process)
    os.kill(int(reached.read_text()), signal.SIGKILL)
    assert process.wait(SECONDS) == 0, log(folder)
    assert json.loads((folder / "found.json").read_text()) == whole


@pytest.mark.parametrize("program", ["good", "bad"])
def test_a_partition_with_damaged_state_waits_until_the_state_is_put_back(
    program: str, spark: SparkSession, tmp_path: Path
) -> None:
    """With the bad program the partition is parked before its state is damaged."""
    folder = tmp_path / "parked"
    checkpoint = folder / "checkpoint"
    segments = {"minDeltasForSnapshot": "1000", "holdfast.maxFileBytes": "1"}
    settings = [f"--conf={STATE}{key}={value}" for key, value in segments.items()]
    found(folder, *settings, f"{program}:0-4")
    newest = [stores[0] for stores in commit_ids(checkpoint, 3)["0"]]
    parked = [bool(CommitId.parse(store).pending) for store in newest]
    assert any(parked) == (program == "bad")
    partition = parked.index(True) if program == "bad" else 1
    # A parked version has the state of the batch before.
    (store,) = commit_ids(checkpoint, 1 if program == "bad" else 3)["0"][partition]
    segment = lineage(checkpoint, store)[-1]
    path = segment.path(checkpoint)
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[segment.offset + segment.len - 1] ^= 0x10
    path.write_bytes(damaged)
    found(folder, *settings, "--unread", "good:4-6")
    assert "DamagedStateException" in log(folder)
    path.write_bytes(sound)
    is_ = found(folder, *settings, "good:6-7")
    phases = [range(4), range(4, 6), range(6, 7)]
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, "counts")
