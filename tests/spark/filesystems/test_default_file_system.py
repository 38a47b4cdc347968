"""Regional pipelines on a cluster whose default file system is HDFS: what a path means there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.files.reached import HadoopPath
from support.regional.pipelines import COUNTED, Row, expected, rows_of
from support.regional.restorable import Counting
from support.spark.mini_hdfs import MiniHdfs
from support.spark.regional_input import regional_source, write_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

REGIONS = ["a", "b", "c"]
DEFAULT = "fs.defaultFS"


@contextmanager
def default_file_system(spark: SparkSession, uri: str) -> Iterator[None]:
    """What ``core-site.xml`` of a cluster says."""
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get(DEFAULT)
    settings.set(DEFAULT, uri)
    try:
        yield
    finally:
        settings.set(DEFAULT, before)


def mounted_source(spark: SparkSession, folder: Path) -> DataFrame:
    return regional_source(spark, f"file:{folder}")


def counted(source: DataFrame) -> holdfast.RegionalPipeline:
    return holdfast.regional(source, region_by="region").apply(
        Counting(), schema=COUNTED, name="count"
    )


def sorted_rows(rows: DataFrame) -> list[Row]:
    return sorted(map(tuple, rows.collect()))


def batch(folder: Path, number: int) -> list[Row]:
    rows = rows_of(number, REGIONS)
    write_rows(folder, number, rows)
    return rows


def test_a_text_without_scheme_is_a_path_of_the_default_file_system(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    # No such folder is here, and none may be made.
    name = f"/pipelines-of-{tmp_path.name}"
    assert not Path(name).exists()
    batches = [batch(tmp_path / "in", 0)]
    with default_file_system(spark, hdfs.uri):
        pipeline = counted(mounted_source(spark, tmp_path / "in")).write_parquet(f"{name}/out")
        query = pipeline.start(f"{name}/ckpt", name="counts")
        query.processAllAvailable()
        query.stop()
        batches.append(batch(tmp_path / "in", 1))
        query = pipeline.start(f"{name}/ckpt", name="counts")
        query.processAllAvailable()
        query.stop_with_savepoint(f"{name}/saved")
        # Spark finds the output by the same words.
        assert sorted_rows(spark.read.parquet(f"{name}/out")) == expected(batches)
        batches.append(batch(tmp_path / "in", 2))
        query = pipeline.start(
            f"{name}/next", name="counts", restore=holdfast.restore(f"{name}/saved")
        )
        query.processAllAvailable()
        query.stop()
        assert sorted_rows(spark.read.parquet(f"{name}/out")) == expected(batches)
    folders = {path.name for path in HadoopPath(f"{hdfs.uri}{name}").iterdir()}
    assert folders == {"ckpt", "next", "out", "saved"}
    assert not Path(name).exists()


@pytest.mark.parametrize("scheme", ["", "file:"], ids=["path", "uri"])
def test_a_path_is_mounted_whatever_the_default_file_system(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path, scheme: str
) -> None:
    def place(name: str) -> str | Path:
        return f"{scheme}{tmp_path / name}" if scheme else tmp_path / name

    batches = [batch(tmp_path / "in", 0)]
    before = sorted(HadoopPath(hdfs.uri).iterdir())
    with default_file_system(spark, hdfs.uri):
        pipeline = counted(mounted_source(spark, tmp_path / "in")).write_parquet(place("out"))
        for number in (1, 2):
            query = pipeline.start(place("ckpt"), name="counts")
            query.processAllAvailable()
            query.stop()
            batches.append(batch(tmp_path / "in", number))
        query = pipeline.start(place("ckpt"), name="counts")
        query.processAllAvailable()
        latest = query.latest
        query.stop_with_savepoint(place("saved"))
        assert sorted_rows(spark.read.parquet(f"file:{tmp_path / 'out'}")) == expected(batches)
        # What is given up is read once more, from what is here.
        query = pipeline.start(place("ckpt"), name="counts", checkpoint_id=latest.id)
        query.processAllAvailable()
        query.stop()
        assert sorted_rows(spark.read.parquet(f"file:{tmp_path / 'out'}")) == expected(batches)
    assert sorted(HadoopPath(hdfs.uri).iterdir()) == before
    assert (tmp_path / "saved" / "metadata").is_dir()


def test_rows_for_a_function_are_read_where_they_are(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    batches = [batch(tmp_path / "in", 0)]
    given: list[Row] = []

    def keep(rows: DataFrame, _: holdfast.CheckpointId) -> None:
        given.extend(sorted_rows(rows))

    with default_file_system(spark, hdfs.uri):
        pipeline = counted(mounted_source(spark, tmp_path / "in")).foreach_batch(keep)
        query = pipeline.start(tmp_path / "ckpt", name="counts")
        query.processAllAvailable()
        query.stop()
    assert sorted(given) == expected(batches)


def test_output_that_was_named_before_spark_was_known_is_asked_about(
    spark: SparkSession, hdfs: MiniHdfs, tmp_path: Path
) -> None:
    batch(tmp_path / "in", 0)
    out = tmp_path / "out"
    pipeline = counted(mounted_source(spark, tmp_path / "in")).write_parquet(str(out))
    with default_file_system(spark, hdfs.uri):
        with pytest.raises(ValueError, match=r"no session yet") as refused:
            pipeline.start(f"{tmp_path}/ckpt", name="counts")
        remote = HadoopPath(f"{hdfs.uri}{tmp_path}")
        assert f"name it '{remote / 'out'}' or 'file:{out}'" in str(refused.value)
        assert not remote.exists()
    assert not out.exists()


def test_a_default_file_system_that_spark_does_not_reach_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = counted(regional_source(spark, f"file:{tmp_path}")).write_parquet(tmp_path / "out")
    with (
        default_file_system(spark, "nosuch://place/"),
        pytest.raises(OSError, match=r"no files of the scheme 'nosuch', as in nosuch://place/"),
    ):
        pipeline.start("/ckpt", name="counts")
    assert not (tmp_path / "out").exists()
