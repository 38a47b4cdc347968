"""Regional pipelines whose checkpoints and output are on HDFS or S3, with kills of the driver."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.files.reached import HadoopPath
from holdfast.regions.files.folders import DROPPED_TOGETHER
from support.regional.pipelines import COUNTED, Row, expected, rows_of
from support.regional.restorable import Counting
from support.spark.commands import run_commands
from support.spark.mini_hdfs import MiniHdfs
from support.spark.object_stores import S3Server
from support.spark.regional_input import regional_source, write_rows
from support.spark.regional_job import (
    DEATHS_OF_OTHERS,
    DRAINING,
    POINTS_OF_OTHERS,
    REGIONS,
    batches_of,
)
from support.spark.regional_run import log_of, run_job
from support.spark.unreliable import UnreliableProxy

# Several Spark applications in a row: for when the machine is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOW = {"availableNow": True}
#: Two to spare, so that HDFS can replace lost ones in a pipeline of three.
DATA_NODES = 5


@dataclass(frozen=True)
class Remote:
    """A place on another file system."""

    #: Folder for a checkpoint and for output.
    uri: str
    #: Settings of Spark to reach it.
    settings: dict[str, str]
    #: Variables of the environment that it takes, too.
    environment: dict[str, str]
    #: The same as files here, where it is such.
    objects: Path | None

    def output(self, name: str) -> Path | HadoopPath:
        return HadoopPath(f"{self.uri}/{name}") if self.objects is None else self.objects / name

    def rows(self, name: str = "out") -> list[Row]:
        """The rows that a reader of an output sees, sorted."""
        found: list[Row] = []
        for file in self.output(name).iterdir():
            if not file.name.endswith(".parquet"):
                continue
            table = pq.read_table(io.BytesIO(file.read_bytes()))
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
        return sorted(found)

    def commands(self, *commands: Sequence[str]) -> list[str]:
        """Run ``holdfast`` on it."""
        return run_commands(self.settings, self.environment, *commands)


@pytest.fixture(params=[pytest.param("hdfs", marks=pytest.mark.full), "s3a"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    if request.param == "hdfs":
        return Remote(f"{request.getfixturevalue('hdfs').uri}/{tmp_path.name}", {}, {}, None)
    name = tmp_path.name.replace("_", "-").lower()[:60]
    store = request.getfixturevalue("s3").store(name)
    return Remote(store.uri, store.settings, store.environment, store.folder)


def job(folder: Path, remote: Remote, *arguments: str) -> int:
    """Exit code of the job with checkpoint and output on the remote file system."""
    settings = [f"--set={key}={value}" for key, value in remote.settings.items()]
    places = ["--checkpoint", f"{remote.uri}/ckpt", "--output", f"{remote.uri}/out"]
    places += ["--ids", f"{remote.uri}/ids"]
    return run_job(folder, *places, *settings, *arguments, more=remote.environment)


def written(folder: Path, count: int) -> list[list[Row]]:
    batches = [rows_of(number, REGIONS, each=60) for number in range(count)]
    for number, rows in enumerate(batches):
        write_rows(folder / "in", number, rows)
    return batches


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("second-link",), marks=pytest.mark.full),
        pytest.param(POINTS_OF_OTHERS, marks=[pytest.mark.full, pytest.mark.timeout(2400)]),
    ],
    ids=["one", "all"],
)
def test_driver_killed_at_one_point_after_the_other(
    spark: SparkSession, tmp_path: Path, remote: Remote, points: Sequence[str]
) -> None:  # R18, R74, R81
    batches = written(tmp_path, batches_of(len(points)))
    deaths = [*zip(points, range(len(points)), strict=True)]
    if len(points) > 1:
        deaths.append((points[-1], DRAINING))
    for point, at in deaths:
        code = job(tmp_path, remote, "--master", "local[2]", "--kill", point, "--at", str(at))
        assert code == -signal.SIGKILL, f"{point} in batch {at}: {log_of(tmp_path)}"
        rows = remote.rows()
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(expected(batches))
    assert job(tmp_path, remote, "--master", "local[1]") == 0, log_of(tmp_path)
    assert remote.rows() == expected(batches)
    assert remote.rows("ids") == [row[:2] for row in expected(batches)]
    shown, _, told = remote.commands(
        *([command, "--json", f"{remote.uri}/ckpt"] for command in ("show", "verify", "history"))
    )
    *older, checkpoint = json.loads(shown)["checkpoints"]
    # On S3 older ones go several at once.
    assert len(older) < (DROPPED_TOGETHER if remote.objects else 1)
    assert (checkpoint["batch"], checkpoint["in_flight_rows"]) == (len(batches) - 1, 0)
    attempts = json.loads(told)["attempts"]
    # A driver that is killed behind its last checkpoint has not noted that yet.
    assert attempts[-1]["id"] >= checkpoint["id"] - (points[-1] == "done")
    assert len({attempt["run"] for attempt in attempts}) > 1


@pytest.mark.full
def test_executors_killed_in_the_middle_of_batches(
    spark: SparkSession, tmp_path: Path, remote: Remote
) -> None:
    batches = written(tmp_path, 7)
    arguments = ["--master", "local-cluster[2,1,1024]", "--kill-executors"]
    assert job(tmp_path, remote, *arguments) == 0, log_of(tmp_path)
    assert {mark.name for mark in (tmp_path / "marks").iterdir()} >= {"executor-2", "executor-5"}
    assert remote.rows() == expected(batches)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["executor", "worker"])
def test_one_process_killed_at_one_point_after_the_other(
    spark: SparkSession, tmp_path: Path, remote: Remote, kind: str
) -> None:  # R74, R81
    batches = written(tmp_path, batches_of(len(DEATHS_OF_OTHERS)))
    arguments = ["--master", "local-cluster[2,1,1024]", "--kill-one", kind]
    assert job(tmp_path, remote, *arguments) == 0, log_of(tmp_path)
    marks = {mark.name for mark in (tmp_path / "marks").iterdir()}
    assert marks >= {f"{kind}-{batch}-{point}" for batch, point in DEATHS_OF_OTHERS.items()}
    assert remote.rows() == expected(batches)
    remote.commands(["verify", f"{remote.uri}/ckpt"])


@pytest.mark.full
def test_savepoint_restore_and_going_back_on_hdfs(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    uri = f"{hdfs.uri}/{tmp_path.name}"
    remote = Remote(uri, {}, {}, None)

    def start(checkpoint: str, **options: object) -> holdfast.RegionalQuery:
        return (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(Counting(), schema=COUNTED, name="count")
            .write_parquet(f"{uri}/out")
            .start(f"{uri}/{checkpoint}", **options)
        )

    batches = written(tmp_path, 2)
    query = start("ckpt", num_retained=5)
    query.processAllAvailable()
    query.stop_with_savepoint(f"{uri}/saved")
    assert query.exception() is None
    batches += written(tmp_path, 4)[2:]
    origin = holdfast.restore(f"{uri}/saved", mode="claim")
    query = start("next", restore=origin, trigger=NOW, num_retained=5)
    query.awaitTermination()
    assert remote.rows() == expected(batches)
    assert not HadoopPath(f"{uri}/saved").exists()
    back = query.latest.id - 1
    query = start("next", checkpoint_id=back, trigger=NOW, num_retained=5)
    query.awaitTermination()
    assert remote.rows() == expected(batches)
    (shown,) = remote.commands(["show", f"{uri}/next", "--details"])
    assert f"regions of checkpoint {query.latest.id}" in shown


def test_published_files_on_hdfs_may_be_taken_away(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:  # R81
    uri = f"{hdfs.uri}/{tmp_path.name}"

    def run(output: str = "out") -> None:
        query = (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(Counting(), schema=COUNTED, name="count")
            .write_parquet(f"{uri}/{output}")
            .start(f"{uri}/ckpt", trigger=NOW)
        )
        query.awaitTermination()

    batches: list[list[Row]] = []
    for count, killed in enumerate([False, True, False], start=1):
        batches = written(tmp_path, count)
        run()
        remote = Remote(uri, {}, {}, None)
        assert remote.rows() == [row for row in expected(batches) if row[1] >= 1000 * (count - 1)]
        if killed:
            # A driver that dies leaves no record, and Spark's commit of the batch.
            HadoopPath(f"{uri}/ckpt/published").unlink()
            HadoopPath(f"{uri}/out").remove_tree()
        for file in HadoopPath(f"{uri}/out").iterdir() if not killed else ():
            if file.name.endswith(".parquet"):
                file.unlink()
    batches = written(tmp_path, 4)
    run("next")
    assert remote.rows("next") == [row for row in expected(batches) if row[1] >= 3000]


@pytest.mark.full
def test_a_data_node_that_stops_between_batches_changes_nothing(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    uri = f"{hdfs.uri}/{tmp_path.name}"
    batches = written(tmp_path, 1)
    query = (
        holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
        .apply(Counting(), schema=COUNTED, name="count")
        .write_parquet(f"{uri}/out")
        .start(f"{uri}/ckpt")
    )
    for count in (2, 3):
        query.processAllAvailable()
        # Open for the next checkpoint, with a replica on three of the data nodes.
        newest = max(path.name for path in HadoopPath(f"{uri}/ckpt/segments").iterdir())
        hdfs.stop_data_node_of(f"{uri}/ckpt/segments/{newest}")
        batches = written(tmp_path, count)
    query.processAllAvailable()
    query.stop()
    assert Remote(uri, {}, {}, None).rows() == expected(batches)


@pytest.mark.full
def test_requests_that_fail_and_are_late_cost_time_and_no_row(
    spark: SparkSession, tmp_path: Path, s3: S3Server
) -> None:
    batches = written(tmp_path, 3)
    store = s3.store("troubled")
    endpoint = "spark.hadoop.fs.s3a.endpoint"
    port = int(store.settings[endpoint].rpartition(":")[2])
    with UnreliableProxy(port, delay_ms=10, pieces_per_break=30) as proxy:
        late = {endpoint: f"http://127.0.0.1:{proxy.port}"}
        remote = Remote(store.uri, store.settings | late, store.environment, store.folder)
        assert job(tmp_path, remote, "--master", "local[2]") == 0, log_of(tmp_path)
    assert proxy.breaks > 10
    assert remote.rows() == expected(batches)
    run_commands(store.settings, store.environment, ["verify", f"{remote.uri}/ckpt"])


@pytest.mark.full
def test_a_second_pipeline_in_the_same_folders_is_refused(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    uri = f"{hdfs.uri}/{tmp_path.name}"
    written(tmp_path, 1)

    def start(name: str, checkpoint: str, out: str) -> holdfast.RegionalQuery:
        return (
            holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
            .apply(Counting(), schema=COUNTED, name="count")
            .write_parquet(f"{uri}/{out}")
            .start(f"{uri}/{checkpoint}", name=name)
        )

    query = start("first", "ckpt", "out")
    query.processAllAvailable()
    with pytest.raises(holdfast.FolderInUseError, match=f"in process {os.getpid()} on"):
        start("second", "ckpt", "other")
    with pytest.raises(holdfast.FolderInUseError):
        start("third", "third", "out")
    query.stop()
    with pytest.raises(FileExistsError, match="belongs to pipeline 'first'"):
        start("third", "third", "out")
