"""A query completes its batches although one partition keeps failing, and catches up later."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.isolation import QUERIES, TRIED, partition_of, written
from support.spark.isolation_runs import found, job, kill, log, undisturbed, wait_for
from support.spark.queries import STATE

#: Queries in which the driver is killed.
NEVER_END = ("never_shuffled", "never_done")


@pytest.mark.parametrize(
    ("query", "sink", "master"),
    [
        ("distinct", "v2", "local[2,4]"),
        ("counts", "foreach", "local-cluster[2,1,1024]"),
        pytest.param("windows", "parquet", "local[2,4]", marks=pytest.mark.full),
        *(
            pytest.param(query, "foreach", "local[2,4]", marks=pytest.mark.full)
            for query in QUERIES
            if query not in (*NEVER_END, "deadly", "hungry", "slow")
        ),
        *(
            pytest.param(query, "foreach", "local-cluster[2,1,1024]", marks=pytest.mark.full)
            for query in ("deadly", "hungry")
        ),
    ],
)
def test_all_rows_come_once_after_the_program_is_repaired(
    query: str, sink: str, master: str, spark: SparkSession, tmp_path: Path
) -> None:
    arguments = ("--query", query, "--sink", sink, "--master", master)
    # The first repair helps the first pass of the replay only.
    is_ = found(tmp_path / "parked", *arguments, "bad:0-6", "half:6-7", "good:7-8")
    phases = (range(6), range(6, 7), range(7, 8))
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, query, sink)
    assert max(map(int, re.findall(r"is parked in batch (\d+)", log(tmp_path / "parked")))) > 5


def test_other_partitions_miss_nothing_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    # The next try is the first one of a part of the keys.
    found(tmp_path / "parked", "bad:0-5")
    undisturbed(spark, tmp_path / "whole", [range(5)], "counts")
    parked, whole = (written(tmp_path / name / "output") for name in ("parked", "whole"))
    partitions = partition_of(spark, {row[0] for rows in whole.values() for row in rows})
    for batch in range(5):
        isolated = {partitions["bad"]} if batch >= 2 else set()
        assert parked[batch] == [row for row in whole[batch] if partitions[row[0]] not in isolated]
    assert log(tmp_path / "parked").count("is parked in batch 2 after 2 failures") == 1


def test_a_batch_that_runs_again_after_a_kill_parks_what_was_parked(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    process = job(folder, "--block", "2", "bad:0-6")
    wait_for(folder / "blocked", folder, process)
    kill(process)
    marker = folder / "checkpoint" / "isolation" / "2"
    assert not (folder / "checkpoint" / "commits" / "2").exists()
    sound = marker.read_bytes()
    marker.write_bytes(sound[:20])
    found(folder, "good!:6-6")
    assert re.search(r"isolation/2 is damaged, .* Put the file back from a copy", log(folder))
    marker.write_bytes(sound)
    whole = undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "counts")
    assert found(folder, "good:6-6", "good:6-7") == whole


@pytest.mark.full
@pytest.mark.parametrize("query", ["never_shuffled", "never_done"])
def test_a_partition_stays_parked_if_the_driver_dies_before_the_batch_delivers_it(
    query: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    found(folder, "bad:0-6")
    tried = folder / "tried"
    process = job(folder, "--query", query, "bad:6-7", variables={TRIED: str(tried)})
    planned = folder / "checkpoint" / "offsets" / "6"
    wait_for(tried if query == "never_done" else planned, folder, process)
    kill(process)
    assert not (folder / "checkpoint" / "isolation" / "6").exists()
    # The same program goes on, with the same rows parked.
    is_ = found(folder, "bad:7-8", "good:8-9")
    phases = [range(6), range(6, 8), range(8, 9)]
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, "counts")
    assert "may have given the rows" not in log(folder)


@pytest.mark.full
def test_a_batch_that_an_earlier_run_may_have_delivered_parks_only_if_that_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    found(folder, "bad!/off:0-6")
    assert not (folder / "checkpoint" / "isolation").exists()
    found(folder, "bad!:6-6")
    assert "may have given the rows of this batch to the sink" in log(folder)
    assert "is parked" not in log(folder)
    is_ = found(folder, "--rerun", "at-least-once", "bad:6-6", "good:6-7")
    assert is_ == undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "counts")


def test_a_query_fails_that_would_park_more_partitions_than_it_may(tmp_path: Path) -> None:
    # The bad records are in several windows, and so in several partitions.
    found(tmp_path / "parked", "--query", "windows", "--ratio", "0.1", "bad!:0-8")
    assert "1 partitions are parked, the limit is 1" in log(tmp_path / "parked")


@pytest.mark.full
def test_a_batch_whose_sink_was_not_reached_may_park_when_it_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    sink = ("--query", "distinct", "--sink", "v2")
    # Enough for the rows of one batch.
    found(folder, *sink, f"--conf={STATE}holdfast.isolationMaxBytes=600", "bad!:0-6")
    assert json.loads((folder / "checkpoint" / "isolation" / "2").read_text())["sealed"]
    assert not json.loads((folder / "checkpoint" / "isolation" / "3").read_text())["sealed"]
    is_ = found(folder, *sink, "bad:6-6", "good:6-7")
    whole = undisturbed(spark, tmp_path / "whole", [range(6), range(6, 7)], "distinct", "v2")
    assert is_ == whole
