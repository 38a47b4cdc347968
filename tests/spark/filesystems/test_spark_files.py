"""Spark's own files of a checkpoint may be left to Spark, and be taken over again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from support.spark.log_files import LOGS, Files
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import (
    STATE,
    Batches,
    canonical,
    drain,
    select_provider,
    settings,
    source,
    write_batch,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KEY = STATE + "holdfast.sparkFiles"
#: The setting at each start of a query, which takes two batches then.
STARTS = ("true", "false", "true", "FALSE", "false", "true")


@pytest.fixture(params=["local", pytest.param("hdfs", marks=pytest.mark.full)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a folder for checkpoints."""
    if request.param == "local":
        return tmp_path.as_uri()
    hdfs: MiniHdfs = request.getfixturevalue("hdfs")
    return f"{hdfs.uri}/{tmp_path.name}"


def feed(folder: Path, batch: int) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"key": i * (batch + 1) % 50, "value": batch * 100 + i} for i in range(80)]
    write_batch(folder, batch, rows)


def test_a_query_goes_on_whoever_wrote_the_files_before(
    place: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    runs: dict[str, Batches] = {"ours": {}, "sparks": {}}
    for start, value in enumerate(STARTS):
        for batch in (2 * start, 2 * start + 1):
            feed(folder, batch)
        counted = source(spark, folder).groupBy("key").agg(F.count("*"), F.sum("value"))
        with settings(spark, {KEY: value}):
            drain(counted, checkpoint=f"{place}/ours", mode="update", into=runs["ours"])
        select_provider(spark, "rocksdb")
        try:
            drain(counted, checkpoint=f"{place}/sparks", mode="update", into=runs["sparks"])
        finally:
            select_provider(spark, "holdfast")
    batches = list(range(2 * len(STARTS)))
    assert list(runs["ours"]) == batches, "no batch twice"
    assert runs["ours"] == runs["sparks"]
    for name in ("offsets", "commits"):
        log = Files(spark, f"{place}/ours/{name}")
        assert all(log.exists(str(batch)) for batch in batches)
    for value in ("true", "false"):
        with settings(spark, {KEY: value}):
            state = spark.read.format("statestore").load(f"{place}/ours")
            assert state.count() == 50
            rows = canonical(state.select("key.key", "value.count", "value.sum").collect())
            latest = {row[0]: row for batch in batches for row in runs["sparks"][batch]}
            assert rows == sorted(latest.values(), key=repr)


@pytest.mark.parametrize(("value", "ours"), [("true", True), ("false", False)])
def test_a_local_entry_is_spark_s_own_where_it_is_off(
    value: str, ours: bool, spark: SparkSession, tmp_path: Path
) -> None:
    with settings(spark, {KEY: value}):
        log = Files(spark, (tmp_path / "sources").as_uri())
    out = log.begin("0", b"entry")
    assert (out.getClass().getSimpleName() == "LocalEntry") == ours
    out.close()
    assert log.read("0") == b"entry"
    assert bytes(log.open("0").readAllBytes()) == b"entry"
    log.delete("0")
    assert not log.exists("0")


def test_spark_asks_hdfs_for_what_it_wrote_where_it_is_off(
    hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_batch(tmp_path / "in", 0, [{"key": 0}])
    with settings(spark, {KEY: "false"}):
        writer = source(spark, tmp_path / "in").writeStream.format("noop")
        query = writer.option("checkpointLocation", f"{hdfs.uri}/{tmp_path.name}").start()
    try:
        query.processAllAvailable()
        hdfs.requests()
        write_batch(tmp_path / "in", 1, [{"key": 1}])
        query.processAllAvailable()
        asked = [note.split(" ")[0] for note in hdfs.requests()[1]]
        assert asked.count("create") == asked.count("rename") == len(LOGS)
        assert asked.count("getfileinfo") > 0
    finally:
        query.stop()
