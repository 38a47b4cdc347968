"""Checkpoints that Spark's own offline repartition changed move with all of their state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark.cases import CASES
from support.spark.minors import is_older_than
from support.spark.moved_queries import ADOPTING, FILE_MANAGER, Query, entries
from support.spark.operator_cases import Case, Frames
from support.spark.queries import settings, unload
from support.spark.repartitions import PARTITIONS, repartition

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(is_older_than("4.2"), reason="Spark repartitions offline from 4.2 on"),
]

BEGIN = 4


def total(frames: Frames) -> DataFrame:
    return frames["events"].groupBy().sum("value")


CASES_HERE = {**CASES, "total": Case(query=total, mode="update")}

QUICK = ("windows-append", "rocksdb")
CELLS = [
    pytest.param(name, of, to, marks=() if (name, of) == QUICK else pytest.mark.full)
    for name, of, to in (
        *(("windows-append", of, 8) for of in ("rocksdb", "rocksdb-v2")),
        ("windows-append", "rocksdb", 2),
        *(("windows-append", "rocksdb-changelog", to) for to in (8, 2)),
        *((name, "rocksdb", to) for name in ("join-full-append",) for to in (8, 2)),
        ("transformWithStateInPandas-list-append", "rocksdb-changelog", 8),
    )
]


def repartitioned(spark: SparkSession, name: str, of: str, to: int, folder: Path) -> Query:
    """A query whose state Spark itself gave another number of partitions."""
    query = Query(spark, name, of, folder, partitions=BEGIN, cases=CASES_HERE)
    query.begin()
    manager = spark.conf.get(FILE_MANAGER)
    assert manager is not None
    spark.conf.unset(FILE_MANAGER)
    try:
        with settings(spark, query.old):
            spark._streamingCheckpointManager.repartition(str(query.checkpoint), to)  # type: ignore[attr-defined]
    finally:
        unload(spark)
        spark.conf.set(FILE_MANAGER, manager)
    query.moved.append(max(query.rows) + 1)
    return query


@pytest.mark.parametrize(("name", "of", "to"), CELLS)
def test_a_query_goes_on_with_the_number_that_spark_gave_it(
    name: str, of: str, to: int, spark: SparkSession, tmp_path: Path
) -> None:
    query = repartitioned(spark, name, of, to, tmp_path)
    moved = query.adopt()
    (operator,) = moved["operators"]
    assert operator["partitions"] == to
    query.go_on()
    assert repartition(spark, query.checkpoint, BEGIN, "--yes") == 0
    query.moved.append(max(query.rows) + 1)
    query.move("leave", "rocksdb", "2" if of.endswith("v2") else "1")
    for _ in range(2):
        query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


def test_an_adoption_is_undone(spark: SparkSession, tmp_path: Path) -> None:
    query = repartitioned(spark, "windows-append", "rocksdb", 8, tmp_path)
    query.adopt()
    query.move("undo", False)
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


def test_a_start_adopts(spark: SparkSession, tmp_path: Path) -> None:
    query = repartitioned(spark, "windows-append", "rocksdb", 8, tmp_path)
    query.moved.append(query.moved[-1] + 1)
    with settings(spark, ADOPTING):
        query.go_on()


def test_an_operator_that_spark_divided_although_it_has_one_partition_takes_a_batch_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = repartitioned(spark, "total", "rocksdb", 2, tmp_path)
    with pytest.raises(OSError, match=r"state/0/1, expected 1 partitions .* Run one more batch"):
        query.adopt()
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))
    query.adopt()
    query.go_on()


def planned(checkpoint: Path, partitions: int) -> None:
    """Gives the newest batch another number of partitions, and leaves its state as it is."""
    file = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
    lines = file.read_text().split("\n")
    facts = json.loads(lines[1])
    facts["conf"][PARTITIONS] = str(partitions)
    lines[1] = json.dumps(facts)
    file.write_text("\n".join(lines))
    # Hadoop's checksum of the file would call that damage.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def fewer(checkpoint: Path) -> None:
    planned(checkpoint, 2)


def more(checkpoint: Path) -> None:
    planned(checkpoint, 8)


def lost(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state/0/3")


@pytest.mark.parametrize(
    ("of", "damage", "error"),
    [
        (
            "rocksdb",
            fewer,
            "has state of the batch in .*/state/0/2, expected 2 partitions in batch 1",
        ),
        ("rocksdb", more, "has no partition 4 in .*/state/0, expected 8 partitions in batch 1"),
        ("hdfs", fewer, "has state of the batch in .*/state/0/2, expected 2 partitions in batch 1"),
        ("rocksdb-v2", fewer, "has 4 in the commit log, expected 2 partitions in batch 1"),
        ("rocksdb", lost, "has no partition 3 in .*/state/0, expected 4 partitions in batch 1"),
    ],
)
def test_state_that_a_copy_would_leave_behind_refuses_it(
    of: str, damage: Callable[[Path], None], error: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", of, tmp_path, partitions=BEGIN)
    query.begin()
    damage(query.checkpoint)
    before = entries(query.checkpoint)
    with pytest.raises(OSError, match=error):
        query.adopt()
    assert entries(query.checkpoint) == before
