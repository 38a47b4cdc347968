"""Mistakes are refused with an error that names what, where and what to do, and change nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support import TESTS
from support.spark.driver_log import log_of
from support.spark.queries import STATE, drain, settings, source, write_batch
from support.spark.state_files import commit_ids, merged_files, snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "input"
    path.mkdir()
    write_batch(path, 0, [{"key": i} for i in range(40)])
    return path


def counts(spark: SparkSession, folder: Path) -> DataFrame:
    return source(spark, folder).groupBy("key").count()


def run(spark: SparkSession, folder: Path, checkpoint: Path) -> dict[int, list[Any]]:
    batches: dict[int, list[Any]] = {}
    drain(counts(spark, folder), checkpoint=checkpoint, mode="update", into=batches)
    return batches


@pytest.mark.parametrize("other", ["hdfs", "rocksdb"])
def test_a_checkpoint_of_another_provider_is_refused_and_left_as_it_was(
    other: str,
    spark: SparkSession,
    provider: Callable[[str], None],
    folder: Path,
    tmp_path: Path,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    provider(other)
    run(spark, folder, checkpoint)
    write_batch(folder, 1, [{"key": 1}])
    before = snapshot(checkpoint)
    provider("holdfast")
    with pytest.raises(StreamingQueryException) as error:
        run(spark, folder, checkpoint)
    text = str(error.value)
    assert "was made with state store provider" in text
    assert f"holdfast adopt file:{checkpoint}" in text
    assert snapshot(checkpoint) == before
    # The provider that made it still continues it.
    provider(other)
    assert run(spark, folder, checkpoint) == {1: [(1, 2)]}


def test_a_checkpoint_that_records_no_provider_is_refused_at_the_start_and_left_as_it_was(
    spark: SparkSession, provider: Callable[[str], None], folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    provider("hdfs")
    run(spark, folder, checkpoint)
    # As Spark 2.1 wrote it: the settings of the query are not in it.
    entry = checkpoint / "offsets" / "0"
    version, _, *offsets = entry.read_text().split("\n")
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1480981499528}'
    entry.write_text("\n".join([version, metadata, *offsets]))
    (checkpoint / "offsets" / ".0.crc").unlink(missing_ok=True)
    write_batch(folder, 1, [{"key": 1}])
    before = snapshot(checkpoint)
    provider("holdfast")
    with pytest.raises(StreamingQueryException) as error:
        run(spark, folder, checkpoint)
    text = str(error.value)
    assert "does not record which state store provider made it" in text
    assert str(checkpoint) in text
    assert "Job aborted" not in text, "no task ran"
    assert snapshot(checkpoint) == before


def test_checkpoint_format_1_is_refused_before_anything_is_written(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    refusal = pytest.raises(Exception, match="needs state store checkpoint format 2, found 1")
    with settings(spark, {STATE + "checkpointFormatVersion": "1"}), refusal:
        run(spark, folder, checkpoint)
    assert snapshot(tmp_path).keys() == {"input/batch-00000.parquet"}


@pytest.mark.parametrize("part", ["VALUE", "KEY"])
def test_rows_of_another_form_are_refused_as_rocksdb_refuses_them(
    part: str, spark: SparkSession, provider: Callable[[str], None], folder: Path, tmp_path: Path
) -> None:
    def go_on(checkpoint: Path, *more: Column) -> None:
        events = source(spark, folder).withColumn("twice", F.col("key") * 2)
        keys, values = ("key", *more), (F.count("*"),)
        if part == "VALUE":
            keys, values = ("key",), (F.count("*"), *more)
        # In complete mode all that is there is read, under whatever key.
        frame = events.groupBy(*keys).agg(*values)
        drain(frame, checkpoint=checkpoint, mode="complete", into={})

    # This check of the query would refuse it before any row is read.
    unchecked = {STATE + "stateSchemaCheck": "false"}
    error_class = f"STATE_STORE_{part}_ROW_FORMAT_VALIDATION_FAILURE"
    more = F.sum("twice") if part == "VALUE" else F.col("twice")
    for number, which in enumerate(["rocksdb", "holdfast"]):
        provider(which)
        checkpoint = tmp_path / which
        go_on(checkpoint)
        write_batch(folder, 1 + number, [{"key": 1}])
        refusal = pytest.raises(StreamingQueryException, match=error_class)
        with settings(spark, unchecked), refusal as error:
            go_on(checkpoint, more)
        assert re.search(
            r"stateStore=StateStoreId\[ operatorId=0, partitionId=\d", str(error.value)
        )
        committed = len([p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()])
        go_on(checkpoint)
        assert (checkpoint / "commits" / str(committed)).exists(), "nothing was changed by it"


@pytest.mark.parametrize("damage", ["truncated", "altered", "deleted"])
def test_a_damaged_state_file_is_reported_with_file_offset_and_owner(
    damage: str, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    run(spark, folder, checkpoint)
    # A copy elsewhere is loaded from its files: no table in memory belongs to it.
    moved = tmp_path / "moved"
    shutil.copytree(checkpoint, moved)
    (file,) = merged_files(moved)
    good = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(good[: len(good) // 2])
    else:
        # One flip in the last segment's payload.
        file.write_bytes(good[:-80] + bytes([good[-80] ^ 1]) + good[-79:])
    before = snapshot(moved)
    ids = commit_ids(moved, 0)
    reader = spark.read.format("statestore").load(str(moved))
    # Of a file that is gone Spark's providers say that the version is not there.
    kind = "MissingStateException" if damage == "deleted" else "DamagedStateException"
    with pytest.raises(Exception, match=kind) as error:
        reader.collect()
    text = str(error.value)
    assert file.name in text
    assert "offset" in text
    assert "operator 0, partition" in text
    assert snapshot(moved) == before
    file.write_bytes(good)
    assert spark.read.format("statestore").load(str(moved)).count() == 40
    assert len(ids["0"]) == 4


def test_an_unwritable_checkpoint_root_is_named(spark: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    folder.mkdir()

    def run_positive() -> None:
        frame = source(spark, folder).where("key >= 0").groupBy("key").count()
        drain(frame, checkpoint=checkpoint, mode="update", into={})

    write_batch(folder, 0, [{"key": -1}])
    run_positive()
    assert merged_files(checkpoint) == [], "no state yet, so nothing was written"
    # A plain file where the folder of merged files must go: not even root can write there.
    obstacle = checkpoint / "state" / "holdfast"
    shutil.rmtree(obstacle)  # It has the marker of the run.
    obstacle.write_text("in the way")
    write_batch(folder, 1, [{"key": 1}])
    with pytest.raises(StreamingQueryException) as error:
        run_positive()
    assert str(obstacle) in str(error.value)
    assert not (checkpoint / "commits" / "1").exists()
    # Nothing is lost: the batch is replayed once the obstacle is gone.
    obstacle.unlink()
    run_positive()
    assert (checkpoint / "commits" / "1").exists()


START = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.spark.queries import builder
import holdfast
b = builder("local[1]", Path({warehouse!r}))
for key, value in {settings!r}.items():
    b = b.config(key, value)
spark = b.getOrCreate()
"""


COUNT_RATES = """
spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().groupBy("value") \\
    .count().writeStream.format("noop").outputMode("update") \\
    .option("checkpointLocation", {checkpoint!r}) \\
    .trigger(availableNow=True).start().awaitTermination()
"""


def start_session(tmp_path: Path, settings: dict[str, str], then: str = "") -> str:
    """Starts a session in a process of its own; returns what it printed."""
    script = START.format(tests=str(TESTS), warehouse=str(tmp_path / "wh"), settings=settings)
    done = subprocess.run(
        [sys.executable, "-c", script + then],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=200,
        check=False,
    )
    assert done.returncode != 0, "the session should not have started"
    return done.stdout + done.stderr


def test_the_jar_of_another_spark_minor_is_refused_at_session_start(tmp_path: Path) -> None:
    text = start_session(tmp_path, holdfast.spark_conf(spark="4.2"))
    assert "built for Spark 4.2, but the application runs Spark 4.3" in text
    assert "holdfast jar --spark 4.3" in text


def test_without_the_native_jar_the_platform_is_named(tmp_path: Path) -> None:
    settings = {**holdfast.spark_conf(), "spark.jars": str(holdfast.plugin_jars()[0])}
    text = start_session(
        tmp_path,
        settings,
        then=COUNT_RATES.format(checkpoint=str(tmp_path / "ckpt")),
    )
    assert "native jar of Holdfast is missing, or holds no library for linux-" in text
    assert not (tmp_path / "ckpt" / "commits" / "0").exists()


def test_settings_without_the_jars_end_as_the_reference_of_errors_says(tmp_path: Path) -> None:
    settings = holdfast.spark_conf()
    del settings["spark.jars"]
    text = start_session(tmp_path, settings)
    assert "ClassNotFoundException: io.holdfast.spark.HoldfastPlugin" in text
    page = (TESTS.parent / "docs" / "reference" / "errors.md").read_text()
    assert "`ClassNotFoundException`: `io.holdfast.spark.…`" in page


REGIONAL = """
import holdfast
from support.regional.pipelines import COUNTED, RunningCount

rows = spark.readStream.format("rate").load().selectExpr("'a' region", "value")
counted = holdfast.regional(rows, region_by="region").apply(
    RunningCount(), schema=COUNTED, name="count"
)
for start in (
    lambda: counted.write_parquet("out").start("checkpoint"),
    lambda: counted.foreach_batch(print).start("checkpoint"),
    lambda: holdfast.restore("savepoint"),
):
    try:
        start()
    except RuntimeError as error:
        print("said:", error)
raise SystemExit(1)
"""


def test_a_regional_pipeline_in_a_session_without_holdfast_is_refused(tmp_path: Path) -> None:
    text = start_session(tmp_path, {}, then=REGIONAL)
    assert text.count("said: the Spark application does not have Holdfast's jar") == 3, text
    assert text.count("holdfast.configure(SparkSession.builder).getOrCreate()") == 3
    assert {path.name for path in tmp_path.iterdir()} <= {"wh", "artifacts"}, "nothing was made"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("spark.plugins", "plugin is not running in this application"),
        pytest.param(
            "spark.sql.streaming.checkpointFileManagerClass",
            "checkpointFileManagerClass must be",
            marks=pytest.mark.full,
        ),
    ],
)
def test_half_a_configuration_says_what_is_missing(missing: str, said: str, tmp_path: Path) -> None:
    settings = {key: value for key, value in holdfast.spark_conf().items() if key != missing}
    text = start_session(
        tmp_path,
        settings,
        then=COUNT_RATES.format(checkpoint=str(tmp_path / "ckpt")),
    )
    assert said in text
    assert "holdfast.configure" in text


def test_state_beyond_the_memory_bound_fails_the_task_and_commits_nothing(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    with (
        settings(spark, {STATE + "holdfast.maxMemoryBytes": "1000"}),
        pytest.raises(StreamingQueryException) as failure,
    ):
        run(spark, folder, checkpoint)
    assert "the limit is 1000" in str(failure.value)
    assert "holdfast.maxMemoryBytes" in str(failure.value)
    assert "operator 0, partition" in str(failure.value)
    assert not (checkpoint / "commits" / "0").exists()
    with settings(spark, {STATE + "holdfast.maxMemoryBytes": str(1 << 40)}):
        assert len(run(spark, folder, checkpoint)[0]) == 40


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("maxFileBytes", "64 parsecs", "Found '64 parsecs'"),
        ("maxFileBytes", "0", "Found '0'"),
        ("maxMemoryBytes", "-1g", "Found '-1g'"),
        ("targetMemoryBytes", "much", "Found 'much'"),
        ("compression", "snappy", "Found 'snappy'"),
        ("changeJournal", "yes", "Found 'yes'"),
        ("sparkFiles", "off", "Found 'off'"),
        ("isolateFailures", "on", "Found 'on'"),
        ("isolationMaxRatio", "0", "Found '0'"),
        ("isolationMaxBytes", "0", "Found '0'"),
        ("isolationRerun", "twice", "Found 'twice'"),
        ("rebalance", "on", "Found 'on'"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_query_starts(
    name: str, value: str, said: str, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    key = f"{STATE}holdfast.{name}"
    with settings(spark, {key: value}), pytest.raises(Exception, match=said) as error:
        run(spark, folder, checkpoint)
    assert key in str(error.value)
    assert snapshot(tmp_path).keys() == {"input/batch-00000.parquet"}, "no task ran"


def test_settings_take_sizes_as_spark_writes_them_and_unknown_ones_are_warned_of(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    wanted = {
        "maxFileBytes": "64m",
        "maxMemoryBytes": "4gb",
        "maxFilebytes": "1",
    }
    with log_of(spark, "io.holdfast.spark") as log:
        with settings(spark, {f"{STATE}holdfast.{key}": value for key, value in wanted.items()}):
            assert len(run(spark, folder, tmp_path / "checkpoint")[0]) == 40
        said = log.toString()
    assert said.count(f"knows no setting {STATE}holdfast.maxFilebytes") == 1
    assert f"{STATE}holdfast.maxFileBytes" in said
