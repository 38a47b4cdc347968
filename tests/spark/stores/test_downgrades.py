"""A checkpoint records the Spark that wrote its state, and an older minor does not go on with it.

Versions that are not installed are put into the record; `test_upgrades` has real ones.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support import TESTS
from support.spark.minors import INSTALLED
from support.spark.queries import drain, select_provider, source, write_batch
from support.spark.state_files import snapshot

pytestmark = pytest.mark.versions

FIXTURES = TESTS / "fixtures" / "spark-v1"
#: Records of Spark 3.5.7 and of a vendor's 9.1.0, as version 1 of the format has them.
OLDER, NEWER = ((FIXTURES / f"{name}.json").read_text() for name in ("older", "newer"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An input of one batch; the checkpoint goes beside it."""
    path = tmp_path / "input"
    path.mkdir()
    write_batch(path, 0, [{"key": key} for key in range(4)])
    return path


def count(spark: SparkSession, folder: Path) -> dict[int, list[Any]]:
    """Run a counting query on what its input has; its new rows, by batch."""
    return drain_keys(source(spark, folder).groupBy("key").count(), folder)


def drain_keys(frame: DataFrame, folder: Path) -> dict[int, list[Any]]:
    batches: dict[int, list[Any]] = {}
    drain(frame, checkpoint=folder.parent / "checkpoint", mode="update", into=batches)
    return batches


def record(folder: Path) -> Path:
    return folder.parent / "checkpoint" / "state" / "holdfast.json"


def spark_of(folder: Path) -> str:
    """The version in the record."""
    written = json.loads(record(folder).read_text())
    assert written.pop("version") == 1
    version: str = written.pop("spark")
    assert written == {}
    return version


def put(folder: Path, text: str) -> None:
    """Another record in the place of the one that is there."""
    record(folder).write_text(text)
    # What Hadoop checks local files against.
    record(folder).with_name(f".{record(folder).name}.crc").unlink(missing_ok=True)


def require_refused(spark: SparkSession, folder: Path, *said: str) -> None:
    """The query does not start, says why, and leaves the checkpoint as it was."""
    checkpoint = folder.parent / "checkpoint"
    write_batch(folder, 9, [{"key": 1}])
    before = snapshot(checkpoint)
    with pytest.raises(Exception, match="Nothing was changed") as refusal:
        count(spark, folder)
    for part in (str(checkpoint), *said):
        assert part in str(refusal.value)
    assert snapshot(checkpoint) == before


def test_a_newer_minor_wrote_the_state_so_the_query_is_refused_with_both_versions(
    spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    put(folder, NEWER)
    require_refused(
        spark,
        folder,
        "was written by Spark 9.1.0-vendor-2",
        f"this application runs Spark {pyspark.__version__}",
        "Run the query on Spark 9.1 or newer",
        "new checkpoint folder",
        "copy that was made before",
        str(record(folder)),
    )


def test_what_a_newer_minor_wrote_can_be_read(spark: SparkSession, folder: Path) -> None:
    count(spark, folder)
    put(folder, NEWER)
    checkpoint = folder.parent / "checkpoint"
    before = snapshot(checkpoint)
    state = spark.read.format("statestore").load(str(checkpoint))
    assert sorted(row["key"][0] for row in state.collect()) == [0, 1, 2, 3]
    assert snapshot(checkpoint) == before


def test_a_newer_minor_records_itself_before_it_changes_state(
    spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    assert spark_of(folder) == pyspark.__version__
    put(folder, OLDER)
    write_batch(folder, 1, [{"key": 7}])
    seven = F.when(F.col("key") == 7, F.raise_error(F.lit("a bad row"))).otherwise(F.col("key"))
    counted = source(spark, folder).withColumn("key", seven.cast("long")).groupBy("key").count()
    with pytest.raises(StreamingQueryException, match="a bad row"):
        drain_keys(counted, folder)
    assert not (folder.parent / "checkpoint" / "commits" / "1").exists()
    assert spark_of(folder) == pyspark.__version__


def test_a_minor_that_failed_before_it_changed_anything_is_not_recorded(
    spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    put(folder, OLDER)
    checkpoint = folder.parent / "checkpoint"
    before = snapshot(checkpoint)
    # Nothing to do: the query starts and ends.
    assert count(spark, folder) == {}
    rows = source(spark, folder).select("key")
    with pytest.raises(AnalysisException, match="output mode is not supported"):
        drain(rows, checkpoint=checkpoint, mode="complete", into={})
    assert snapshot(checkpoint) == before


def test_patches_of_one_minor_go_on_with_each_others_checkpoints(
    spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    put(folder, json.dumps({"version": 1, "spark": f"{INSTALLED}.97"}))
    write_batch(folder, 1, [{"key": 1}])
    assert count(spark, folder) == {1: [(1, 2)]}
    assert spark_of(folder) == f"{INSTALLED}.97"


def test_a_checkpoint_of_a_release_that_recorded_nothing_goes_on_and_records(
    spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    record(folder).unlink()
    write_batch(folder, 1, [{"key": 1}])
    assert count(spark, folder) == {1: [(1, 2)]}
    assert spark_of(folder) == pyspark.__version__


def test_a_folder_that_is_begun_again_is_recorded_again(spark: SparkSession, folder: Path) -> None:
    count(spark, folder)
    shutil.rmtree(folder.parent / "checkpoint")
    assert len(count(spark, folder)[0]) == 4
    assert spark_of(folder) == pyspark.__version__


def test_queries_without_state_of_holdfast_record_nothing(
    spark: SparkSession, folder: Path
) -> None:
    # In a folder whose name looks like that of state.
    nested = folder.parent / "state" / "5"
    shutil.copytree(folder, nested / "input")
    drain_keys(source(spark, folder), nested / "input")
    select_provider(spark, "rocksdb")
    try:
        count(spark, folder)
    finally:
        select_provider(spark, "holdfast")
    assert (folder.parent / "checkpoint" / "commits" / "0").exists()
    assert (nested / "checkpoint" / "commits" / "0").exists()
    assert list(folder.parent.rglob("holdfast.json")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version":2,"spark":"4.3.0"}', "reads versions up to 1: a newer Holdfast wrote"),
        ('{"version":1,"spark":"trunk"}', "is damaged: it does not say which Spark"),
        ('{"version":1,"spark":"99999999999.0"}', "is damaged: it does not say which Spark"),
        ('{"version":1}', "is damaged: it does not say which Spark"),
        ('{"version":1,"sp', "is damaged: it does not say which Spark"),
        ("", "is damaged: it does not say which Spark"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(
    text: str, said: str, spark: SparkSession, folder: Path
) -> None:
    count(spark, folder)
    put(folder, text)
    require_refused(spark, folder, str(record(folder)), said)
