"""Every form of state gets another number of partitions, and each of its rows is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.moved_queries import BEFORE, Query, entries
from support.spark.repartitions import repartition
from support.spark.state_format_cases import FORMAT_CASES

#: Hashes modulo 1 are all 0, so from one partition nothing shows a wrong hash but the rows.
QUICK = {("join-4", 1), ("kinds-by-entry-of-a-map", 1)}


@pytest.mark.versions
@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        pytest.param(name, one, marks=() if (name, one) in QUICK else pytest.mark.full)
        for name in FORMAT_CASES
        for one in (1, 3)
    ],
)
def test_rows_of_every_form_of_state_are_found_in_other_partitions(
    name: str, partitions: int, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, name, "rocksdb", tmp_path, partitions=partitions, cases=FORMAT_CASES)
    query.begin()
    query.adopt()
    query.go_on()
    for number in (4, 2):
        assert repartition(spark, query.checkpoint, number, "--yes") == 0
        query.moved.append(max(query.rows) + 1)
        query.go_on()


def describe(checkpoint: Path, old: str, new: str) -> None:
    """Changes a word in Spark's descriptions of the operators."""
    for file in (checkpoint / "state/0/_metadata").rglob("[0-9m]*"):
        if file.is_file() and old in file.read_text():
            file.write_text(file.read_text().replace(old, new))
            # Hadoop's checksum of the file would call that damage.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.full
def test_state_that_is_not_known_is_refused_from_one_partition_too(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unknown = "MapState", "QueueState"
    query = Query(spark, "maps-unsaferow", "rocksdb", tmp_path, partitions=1, cases=FORMAT_CASES)
    query.feed(BEFORE)
    query.run_holdfast()
    describe(query.checkpoint, known, unknown)
    before = entries(query.checkpoint)
    assert repartition(spark, query.checkpoint, 4, "--yes") == 1
    assert "does not know how Spark partitions the state of operator 0" in capsys.readouterr().err
    assert entries(query.checkpoint) == before
    describe(query.checkpoint, unknown, known)
    query.run_undisturbed()
    query.go_on()
