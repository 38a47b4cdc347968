"""Executors whose processes are another user's than the application, as on YARN without Kerberos:
they ask HDFS in the name of the application's user."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.regional.pipelines import rows_of
from support.spark.jobs import run_job
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import EVICTING, write_batch
from support.spark.regional_input import write_rows
from support.spark.regional_job import REGIONS
from support.spark.regional_run import log_of
from support.spark.regional_run import run_job as run_regional_job
from support.spark.remote_folder import RemoteFolder
from support.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

USER = "alice"


@pytest.fixture
def home(
    hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A folder of the application's user, who is the one of every process begun from now on."""
    folder = RemoteFolder(spark, f"{hdfs.uri}/{tmp_path.name}")
    assert folder.file_system().mkdirs(folder.path())
    folder.file_system().setOwner(folder.path(), USER, USER)
    monkeypatch.setenv("HADOOP_USER_NAME", USER)
    hdfs.users()
    return folder.uri


def require_asked_by_user(hdfs: MiniHdfs) -> None:
    asked = hdfs.users()
    assert asked.pop(USER)
    # The name node lists what was asked for by the processes' user, if anything was.
    assert not asked


def test_a_query_asks_in_the_name_of_its_user(
    cluster: StandaloneCluster, hdfs: MiniHdfs, home: str, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    settings = {**EVICTING, "spark.cores.max": "2", "spark.executor.memory": "1g"}
    for number in range(12):
        write_batch(tmp_path / "input", number, [{"key": key} for key in range(5_000)])
        if number % 4 == 3:
            arguments = ["--checkpoint", f"{home}/checkpoint", f"--conf=spark.master={cluster.url}"]
            run_job("spark/restart_job.py", *arguments, folder=tmp_path, settings=settings)
    require_asked_by_user(hdfs)


def test_a_pipeline_asks_in_the_name_of_its_user(
    cluster: StandaloneCluster, hdfs: MiniHdfs, home: str, tmp_path: Path
) -> None:
    places = ["--checkpoint", f"{home}/checkpoint", "--output", f"{home}/output"]
    for number in range(8):
        write_rows(tmp_path / "in", number, rows_of(number, REGIONS, each=60))
        if number % 4 == 3:
            settings = ["--master", cluster.url, "--set=spark.cores.max=2"]
            assert run_regional_job(tmp_path, *settings, *places) == 0, log_of(tmp_path)
    require_asked_by_user(hdfs)
