"""``holdfast show --html`` of the checkpoint of a real query, opened in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.browser import browser_or_skip, read_page
from support.commands import run
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
    page = tmp_path / "page.html"
    status, lines, err = run(capsys, "show", checkpoint, "--html", page)
    assert (status, lines) == (0, []), err
    with browser_or_skip() as browser:
        shown = read_page(browser, page)
    tables = {table[0][0]: table[1:] for table in shown.tables}
    assert [row[0] for row in tables["batch"]] == [str(n) for n in reversed(range(BATCHES))]
    assert sorted(int(row[1]) for row in tables["operator"]) == [*range(PARTITIONS)]
    assert {row[3] for row in tables["operator"]} == {str(BATCHES)}
    # What the page says of the newest batch is what the segments of that batch are.
    _, lines, _ = run(capsys, "show", checkpoint, "--id", BATCHES - 1, "--json")
    segments = json.loads("\n".join(lines))["segments"]
    stored = sum(segment["stored_bytes"] for segment in segments)
    assert int(tables["batch"][0][5].replace(",", "")) == stored
    files = {row[0]: int(row[1].replace(",", "")) for row in tables["file"]}
    found = {path.name: path.stat().st_size for path in merged_files(checkpoint)}
    assert {name: size for name, size in files.items() if size} == found
    live = sum(int(row[2].replace(",", "")) for row in tables["file"])
    assert stored <= live <= sum(found.values())
