"""Spark Connect: the server is set up for Holdfast, clients need nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from support import clean_environment, environment, program
from support.spark.connect_server import ConnectServer, environment_without_holdfast
from support.spark.java_side import QUICK_START
from support.spark.minors import IS_NEWEST
from support.spark.queries import require_served_by, write_batch
from support.spark.state_files import merged_files

pytestmark = pytest.mark.spark

WAIT_SECONDS = 200
QUERIES = ("distinct", "totals", "counts")
BATCHES = [
    [("a", 1), ("b", 2), ("c", 3)],
    [("a", 10), ("stop", 20), ("d", 30), ("a", 40)],
    [("b", 100), ("e", 200), ("stop", 300)],
]
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.defaultJavaOptions": " ".join(QUICK_START),
    "spark.executor.defaultJavaOptions": " ".join(QUICK_START),
    "spark.sql.shuffle.partitions": "2",
}


def spark_defaults(settings: dict[str, str]) -> str:
    """What ``holdfast conf`` prints, and further settings."""
    command = [sys.executable, "-m", "holdfast", "conf"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return printed + "".join(f"{key} {value}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    running = ConnectServer(tmp_path_factory.mktemp("server"), spark_defaults(SETTINGS))
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without Holdfast."""
    return environment_without_holdfast(tmp_path_factory.mktemp("client"))


def feed(folder: Path, number: int) -> None:
    rows = [{"key": key, "value": value} for key, value in BATCHES[number]]
    write_batch(folder / "input", number, rows)


def run_client(python: Path, server: ConnectServer, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, program("spark/connect_client.py"), server.url, folder],
        env=clean_environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


def expected() -> dict[str, list[list[Any]]]:
    """What the queries end with, from the input alone."""
    rows = [row for batch in BATCHES for row in batch]
    sums: Counter[str] = Counter()
    totals = []
    for batch in BATCHES:
        for key, value in batch:
            sums[key] += value
        totals += [[key, sums[key]] for key in {key for key, _ in batch}]
    counts = Counter(key for key, _ in rows)
    return {
        "distinct": sorted([key] for key in counts),
        "totals": sorted(totals),
        "counts": sorted([key, counts[key], sums[key]] for key in counts),
    }


def check_queries_over_a_kill(server: ConnectServer, python: Path, folder: Path) -> None:
    """Run the queries, kill -9 the server in the middle of a batch, and run them to the end."""
    for name in ("input", "control"):
        (folder / name).mkdir()
    feed(folder, 0)
    feed(folder, 1)
    (folder / "control" / "block").touch()
    running = run_client(python, server, folder)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (folder / "control" / "blocked").exists():
            assert running.poll() is None, f"the client ended early:\n{server.log()[-6000:]}"
            assert time.monotonic() < deadline, server.log()[-6000:]
            time.sleep(0.05)
        server.kill()
    finally:
        running.kill()
        running.communicate()
    checkpoints = folder / "checkpoints"
    assert (checkpoints / "counts" / "commits" / "0").exists()
    assert not (checkpoints / "counts" / "commits" / "1").exists()
    (folder / "control" / "block").unlink()
    server.start()
    feed(folder, 2)
    running = run_client(python, server, folder)
    printed, _ = running.communicate(timeout=WAIT_SECONDS)
    assert running.returncode == 0, server.log()[-6000:]
    assert json.loads(printed) == expected()
    for name in QUERIES:
        require_served_by("holdfast", checkpoints / name)
        assert merged_files(checkpoints / name)


@pytest.mark.full
def test_queries_of_a_client_without_holdfast_go_on_after_the_server_was_killed_in_a_batch(
    server: ConnectServer, client: Path, tmp_path: Path
) -> None:
    check_queries_over_a_kill(server, client, tmp_path)
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", "show", tmp_path / "checkpoints" / "counts"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "whose state is in Holdfast's state store" in shown.stderr


def test_holdfast_in_a_client_says_that_the_server_has_to_be_set_up(
    server: ConnectServer, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, program("spark/connect_refusals.py"), server.url],
        env=environment(),
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    for builder in ("configure, a builder", "configure, the next builder"):
        kind, message = said[builder]
        assert (kind, "holdfast conf" in message) == ("RuntimeError", True), message
        assert "this builder makes a session of Spark Connect" in message
    assert f"spark.remote is {server.url}" in said["configure, a builder"][1]
    kind, message = said["configure, a session"]
    assert kind == "RuntimeError"
    assert message.startswith("this is a session of Spark Connect, and a client cannot load")
    for pipeline in ("regional", "splits"):
        kind, message = said[pipeline]
        assert kind == "NotImplementedError", message
        assert "does not run in a session of Spark Connect" in message
        assert "spark.api.mode set to classic" in message
    assert said["check"] == ["none", ""]
    kind, message = said["check, another provider"]
    assert kind == "RuntimeError"
    assert "this session runs Holdfast, but its queries do not" in message
    assert "session.conf.set" in message
    assert list(tmp_path.iterdir()) == []


TABLE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def first_rows():
    spark = SparkSession.active()
    rows = spark.readStream.schema("key string, value long").parquet("{folder}/input")
    return rows.dropDuplicates(["key"])
"""


@pytest.mark.full
@pytest.mark.skipif(not IS_NEWEST, reason="older PySpark has no script that starts a server")
def test_declarative_pipelines_run_on_a_server_and_not_on_that_of_pyspark(
    server: ConnectServer, tmp_path: Path
) -> None:
    """The server's folder has the tables of the default catalog."""
    (tmp_path / "input").mkdir()
    (tmp_path / "table.py").write_text(TABLE.format(folder=tmp_path))
    storage = tmp_path / "storage"
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: test\nstorage: file://{storage}\nlibraries:\n  - glob:\n      include: table.py\n"
    )
    (tmp_path / "conf").mkdir()
    # Spark refuses a client that has a master.
    settings = {key: value for key, value in SETTINGS.items() if key != "spark.master"}
    (tmp_path / "conf" / "spark-defaults.conf").write_text(spark_defaults(settings))

    def run(*remote: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(pyspark.__file__).parent / "bin" / "spark-pipelines", *remote, "run"],
            env=clean_environment() | variables,
            cwd=tmp_path,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_SECONDS,
        )

    variables = {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYSPARK_PYTHON": sys.executable}
    feed(tmp_path, 0)
    refused = run()
    assert refused.returncode != 0
    assert "PySpark started a Spark Connect server for it" in refused.stdout
    assert "spark-pipelines --remote sc://HOST:15002 run" in refused.stdout
    assert not storage.exists()
    for number in range(3):
        if number > 0:
            feed(tmp_path, number)
        done = run("--remote", server.url)
        assert done.returncode == 0, done.stdout[-6000:]
    written = server.folder / "spark-warehouse" / "first_rows"
    keys = [row["key"] for row in pq.read_table(written).to_pylist()]
    assert sorted(keys) == ["a", "b", "c", "d", "e", "stop"]
    (checkpoint,) = {log.parent for log in storage.rglob("commits")}
    assert str(checkpoint).endswith("_checkpoints/spark_catalog/default/first_rows/first_rows/0")
    require_served_by("holdfast", checkpoint)


@pytest.mark.full
def test_executors_of_a_server_load_the_plugin_once_for_all_its_sessions(
    client: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    cluster = {**SETTINGS, "spark.master": "local-cluster[2,1,1024]"}
    server = ConnectServer(folder, spark_defaults(cluster))
    server.start()
    try:
        (tmp_path / "queries").mkdir()
        check_queries_over_a_kill(server, client, tmp_path / "queries")
    finally:
        server.kill()
