"""What a driver wrote itself into Spark's logs on HDFS it does not ask for, and it is synced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from support.spark.log_files import LOGS, TAKEN, Files
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import source, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.timeout(300)]


@pytest.fixture
def log(hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path) -> Files:
    """A log on HDFS."""
    return Files(spark, f"{hdfs.uri}/{tmp_path.name}/offsets")


@pytest.fixture
def of_another(log: Files, hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path) -> Files:
    """The same log, as another application has it."""
    return Files(spark, f"{hdfs.uri}/{tmp_path.name}/offsets")


def asked(hdfs: MiniHdfs) -> list[str]:
    """What the name node was asked for since the last call, without blocks."""
    return [note.split(" ")[0] for note in hdfs.requests()[1]]


def test_what_an_application_wrote_itself_is_not_asked_for(hdfs: MiniHdfs, log: Files) -> None:
    assert not log.exists("7")
    log.write("7", b"seven")
    asked(hdfs)
    assert log.exists("7")
    assert not log.exists("8")
    log.write("8", b"eight")
    assert not log.exists("9.compact")
    content = log.open("7")
    assert bytes(content.readAllBytes()) == b"seven"
    content.seek(2)
    assert (content.read(), content.getPos(), content.read()) == (ord("v"), 3, ord("e"))
    assert asked(hdfs) == ["create", "rename"]
    # Only the next one can be known not to be there.
    assert not log.exists("10")
    assert asked(hdfs) == ["getfileinfo"]


def test_of_two_that_write_an_entry_on_hdfs_one_has_it(
    hdfs: MiniHdfs, log: Files, of_another: Files
) -> None:
    log.write("0", b"zero")
    of_another.write("1", b"of another")
    assert not log.exists("1"), "nobody was asked"
    with pytest.raises(Py4JJavaError, match=TAKEN):
        log.write("1", b"one")
    asked(hdfs)
    assert log.exists("1")
    assert bytes(log.open("1").readAllBytes()) == b"of another"
    assert set(asked(hdfs)) == {"getfileinfo", "open"}
    assert log.read("1") == b"of another"


def test_a_deleted_entry_is_not_remembered(log: Files, of_another: Files) -> None:
    for number in range(3):
        log.write(str(number), b"old")
    log.delete("2")
    assert not log.exists("2")
    of_another.write("2", b"of another")
    of_another.write("3", b"of another")
    assert log.exists("2")
    assert log.exists("3")
    assert bytes(log.open("2").readAllBytes()) == b"of another"
    log.write("2", b"new", overwrite=True)
    assert bytes(log.open("2").readAllBytes()) == b"new"


def test_the_last_ten_entries_are_kept_whatever_their_size(hdfs: MiniHdfs, log: Files) -> None:
    large = bytes(2 << 20)
    for number in range(11):
        log.write(str(number), large)
    asked(hdfs)
    for number in range(1, 11):
        assert bytes(log.open(str(number)).readAllBytes()) == large
    assert not log.exists("11")
    assert asked(hdfs) == []
    assert bytes(log.open("0").readAllBytes()) == large
    assert asked(hdfs) == ["open"]


def stream(spark: SparkSession, folder: Path, checkpoint: str) -> Any:
    """A query without state."""
    writer = source(spark, folder).writeStream.format("noop")
    return writer.option("checkpointLocation", checkpoint).start()


def test_a_batch_on_hdfs_asks_for_nothing_and_syncs_what_it_writes(
    hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_batch(tmp_path / "in", 0, [{"key": 0}])
    query = stream(spark, tmp_path / "in", f"{hdfs.uri}/{tmp_path.name}")
    query.processAllAvailable()
    # One more than those after which the source repeats its entries.
    for batch in range(1, 12):
        synced = hdfs.syncs()
        asked(hdfs)
        write_batch(tmp_path / "in", batch, [{"key": batch}])
        query.processAllAvailable()
        assert asked(hdfs) == ["create", "rename"] * len(LOGS), batch
        assert hdfs.syncs() - synced >= len(LOGS)
    query.stop()
    # Another process goes on: it remembers nothing.
    write_batch(tmp_path / "in", 12, [{"key": 12}])
    query = stream(spark, tmp_path / "in", f"{hdfs.uri}/{tmp_path.name}")
    query.processAllAvailable()
    assert query.lastProgress["batchId"] == 12
    assert query.lastProgress["numInputRows"] == 1
    query.stop()


@pytest.mark.parametrize("log", LOGS)
def test_a_query_ends_when_another_one_wrote_its_next_entry(
    log: str, hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    checkpoint = f"{hdfs.uri}/{tmp_path.name}"
    write_batch(tmp_path / "in", 0, [{"key": 0}])
    query = stream(spark, tmp_path / "in", checkpoint)
    query.processAllAvailable()
    other = Files(spark, f"{checkpoint}/{log}")
    other.write("1", b"of another")
    write_batch(tmp_path / "in", 1, [{"key": 1}])
    with pytest.raises(StreamingQueryException, match=r"[Cc]oncurrent"):
        query.processAllAvailable()
    assert other.read("1") == b"of another"
