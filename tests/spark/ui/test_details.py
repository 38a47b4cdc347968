"""``holdfast show --details`` of the checkpoint of a real query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.commands import cells, run
from support.spark.queries import drain, settings, source, write_batch
from support.spark.state_files import merged_files

PARTITIONS = 20
BATCHES = 6


@pytest.mark.spark
def test_a_query_that_ran_on_spark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, checkpoint = tmp_path / "input", tmp_path / "ckpt"
    folder.mkdir()
    for number in range(BATCHES):
        write_batch(folder, number, [{"key": key} for key in range(200)])
    with settings(spark, {"spark.sql.shuffle.partitions": str(PARTITIONS)}):
        counts = source(spark, folder).groupBy("key").count()
        drain(counts, checkpoint=checkpoint, mode="update", into={})
    status, lines, err = run(capsys, "show", checkpoint, "--details")
    assert status == 0, err
    tables: dict[str, list[list[str]]] = {}
    for section in "\n".join(lines).split("\n\n")[1:]:
        title, *rows = section.splitlines()
        tables[title.partition(" ")[0]] = [cells(row) for row in rows[1:]]
    assert [row[0] for row in tables["batches"]] == [str(n) for n in reversed(range(BATCHES))]
    assert sorted(int(row[1]) for row in tables["stores"]) == [*range(PARTITIONS)]
    assert {row[3] for row in tables["stores"]} == {str(BATCHES)}
    # What is said of the newest batch is what the segments of that batch are.
    _, lines, _ = run(capsys, "show", checkpoint, "--id", BATCHES - 1, "--json")
    segments = json.loads("\n".join(lines))["segments"]
    stored = sum(segment["stored_bytes"] for segment in segments)
    newest = {segment["partition"]: segment["stored_bytes"] for segment in segments}
    count = str(PARTITIONS)
    (operator,) = tables["stateful"]
    assert operator == ["0", "stateStoreSave", count, count, str(sum(newest.values()))]
    assert int(tables["batches"][0][5]) == stored
    assert sum(int(row[6]) for row in tables["operators"]) == stored
    files = {row[0]: int(row[1]) for row in tables["files:"]}
    found = {path.name: path.stat().st_size for path in merged_files(checkpoint)}
    assert {name: size for name, size in files.items() if size} == found
    live = sum(int(row[2]) for row in tables["files:"])
    assert stored <= live <= sum(found.values())
