"""Bounds of isolation: which queries, how often a partition is tried, how much is parked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.isolation import partition_of, written
from support.spark.isolation_runs import found, log, markers, undisturbed
from support.spark.queries import STATE

pytestmark = pytest.mark.timeout(900)


def tried(folder: Path) -> list[int]:
    """Batches that tried to process the rows of a parked partition."""
    tries = {
        batch: parked["tries"]
        for batch, marker in markers(folder / "checkpoint").items()
        for parked in marker["parked"].values()
    }
    return sorted(batch for batch in tries if tries[batch] > tries.get(batch - 1, 0))


def test_a_query_that_used_up_its_input_ends_with_an_error_while_rows_are_parked(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    # Without new input no batch runs, so the rows wait for the last phase.
    is_ = found(folder, "bad!:0-6", "good!:6-6", "good:6-7")
    said = log(folder)
    assert re.search(
        r"rows are parked in \S+: partition \d of operator 0 since batch 2 \(.*CAST_INVALID_INPUT.*"
        r"Repair the program and start the query again",
        said,
    )
    assert is_ == undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "counts")


@pytest.mark.full
def test_a_query_of_one_batch_ends_with_an_error_while_rows_are_parked(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    phases = ("bad:0-1", "bad:1-2", "bad!:2-3", "bad!:3-4", "good:4-5")
    is_ = found(folder, "--once", *phases)
    assert re.search(r"The query ends, and rows are parked in .*: partition \d", log(folder))
    whole = [range(batch, batch + 1) for batch in range(5)]
    assert is_ == undisturbed(spark, tmp_path / "whole", whole, "counts")


@pytest.mark.full
def test_queries_of_one_application_isolate_or_do_not(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    # A query that does not isolate cannot go on without the rows that are parked.
    is_ = found(folder, "bad/off:0-2", "bad:2-6", "good!/off:6-7", "good:7-7")
    assert "run the query with the isolation of failures that parked it" in log(folder)
    phases = [range(2), range(2, 6), range(6, 7)]
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, "counts")


@pytest.mark.full
def test_a_partition_is_tried_after_1_2_and_4_batches_and_not_in_between(tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    # A task has one failure to spare. Then no partition is divided by keys.
    found(folder, "--master", "local[2,2]", "bad:0-12")
    assert tried(folder) == [2, 3, 5, 9]
    assert (folder / "failed.txt").read_text() == "4"


@pytest.mark.full
def test_a_partition_is_parked_while_its_task_has_an_attempt_left(tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "--master", "local[2,2]", "bad:0-4")
    assert "is parked in batch 2 after 1 failures" in log(folder)
    assert (folder / "failed.txt").read_text() == "2"


@pytest.mark.full
def test_a_query_fails_that_would_park_more_bytes_than_it_may(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    limited = f"--conf={STATE}holdfast.isolationMaxBytes=300"
    found(folder, limited, "bad!:0-6")
    assert re.search(
        r"is not parked: its parked input would be larger than isolation_max_bytes \(300 bytes\)\."
        r" The last failure of its task: \[CAST_INVALID_INPUT\]",
        log(folder),
    )
    assert "is parked in batch" not in log(folder)
    assert not markers(folder / "checkpoint")
    # The repaired program needs no room for parked rows.
    is_ = found(folder, limited, "good:6-7")
    assert is_ == undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "counts")


@pytest.mark.full
def test_one_bad_key_among_200_partitions_stops_one_partition_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    arguments = ("--wide", "--conf=spark.sql.shuffle.partitions=200", "--ratio", "0.01")
    folder = tmp_path / "parked"
    found(folder, *arguments, "bad:0-20", seconds=600)
    whole = undisturbed(
        spark,
        tmp_path / "whole",
        [range(20), range(20, 21)],
        "counts",
        partitions=200,
        wide=True,
    )
    expected = written(tmp_path / "whole" / "output")
    partitions = partition_of(spark, {row[0] for rows in expected.values() for row in rows}, 200)
    batches = written(folder / "output")
    assert sorted(batches) == list(range(20))
    for number, rows in batches.items():
        isolated = {partitions["bad"]} if number >= 2 else set()
        healthy = [row for row in expected[number] if partitions[row[0]] not in isolated]
        # Keys of the partition catch up one part after the other.
        assert [row for row in rows if partitions[row[0]] not in isolated] == healthy, number
    assert found(folder, *arguments, "good:20-21", seconds=600) == whole
