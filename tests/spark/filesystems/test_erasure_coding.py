"""Checkpoints in a folder of HDFS whose files are erasure-coded, which cannot be synced.

What has to be durable is replicated.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from support.regional.pipelines import COUNTED, rows_of
from support.regional.restorable import Counting
from support.spark.mini_hdfs import MiniHdfs
from support.spark.queries import Batches, drain, select_provider, source, write_batch
from support.spark.regional_input import regional_source, write_rows

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(300)]

#: The least that a coded file needs.
DATA_NODES = 3
REGIONS = ["a", "b", "c"]


@pytest.fixture
def folder(hdfs: MiniHdfs, tmp_path: Path) -> str:
    coded = f"{hdfs.uri}/{tmp_path.name}"
    hdfs.code(coded)
    return coded


def test_state_of_a_query_and_sparks_logs_are_synced(
    spark: SparkSession, hdfs: MiniHdfs, folder: str, tmp_path: Path
) -> None:
    select_provider(spark, "holdfast")
    for number in range(4):
        write_batch(tmp_path, number, [{"key": key} for key in range(100)])
    rows: Batches = {}
    counted = source(spark, tmp_path).groupBy("key").count()
    drain(counted, checkpoint=f"{folder}/checkpoint", mode="complete", into=rows)
    write_batch(tmp_path, 4, [{"key": key} for key in range(100)])
    drain(counted, checkpoint=f"{folder}/checkpoint", mode="complete", into=rows)
    assert sorted(rows[4]) == [(key, 5) for key in range(100)]
    written = hdfs.files(f"{folder}/checkpoint")
    assert any(name.endswith(".hf") for name in written)
    assert "commits/0" in written
    assert hdfs.coded(f"{folder}/checkpoint") == []


def test_state_and_metadata_of_a_pipeline_are_synced(
    spark: SparkSession, hdfs: MiniHdfs, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pipeline = (
        holdfast.regional(regional_source(spark, tmp_path / "in"), region_by="region")
        .apply(Counting(), schema=COUNTED, name="count")
        .write_parquet(f"{folder}/out")
    )
    for number in range(3):
        write_rows(tmp_path / "in", number, rows_of(number, REGIONS))
        query = pipeline.start(f"{folder}/checkpoint", name="counts")
        query.processAllAvailable()
        query.stop()
    assert spark.read.parquet(f"{folder}/out").count() == 3 * len(rows_of(0, REGIONS))
    coded = hdfs.coded(folder)
    assert any(name.startswith("out/part-") for name in coded)
    assert not [name for name in coded if name.startswith(("checkpoint/seg", "checkpoint/meta"))]
