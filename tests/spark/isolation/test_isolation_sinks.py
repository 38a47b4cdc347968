"""What sinks have after the repair, compared with an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.isolation import table
from support.spark.isolation_runs import found, undisturbed
from support.spark.java_side import skipped_without_jars
from support.spark.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PHASES = (range(6), range(6, 7), range(7, 8))


def test_a_delta_table_is_merged_pass_by_pass(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    found(folder, "--sink", "delta", "bad:0-6")
    behind = {row["key"]: row["count"] for row in table(folder / "output").to_pylist()}
    is_ = found(folder, "--sink", "delta", "half:6-7", "good:7-8")
    assert is_ == undisturbed(spark, tmp_path / "whole", PHASES, "counts", "delta")
    whole = {row["key"]: row["count"] for row in table(folder / "output").to_pylist()}
    assert "bad" not in behind
    assert behind.items() - whole.items()


def test_a_merge_that_failed_between_passes_is_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "parked"
    found(folder, "--sink", "delta", "bad:0-6")
    found(folder, "--sink", "delta", "--fail", "6", "good!:6-7")
    is_ = found(folder, "--sink", "delta", "good:7-7")
    phases = (range(6), range(6, 7))
    assert is_ == undisturbed(spark, tmp_path / "whole", phases, "counts", "delta")


@pytest.mark.parametrize("query", ["counts", "distinct"])
def test_a_kafka_topic_has_all_rows_at_least_once(
    query: str, spark: SparkSession, helpers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with skipped_without_jars():
        broker = KafkaBroker(tmp_path, helpers, partitions=2)
    for name, value in broker.environment.items():
        monkeypatch.setenv(name, value)
    arguments = ("--query", query, "--sink", broker.servers)
    is_ = found(tmp_path / "parked", *arguments, "bad:0-6", "half:6-7", "good:7-8")
    whole = found(tmp_path / "whole", *arguments, "good/off:0-6", "good/off:6-7", "good/off:7-8")
    broker.close()
    assert is_["state"] == whole["state"]
    rows = [row for (row,) in is_["rows"]]
    assert set(rows) == {row for (row,) in whole["rows"]}
    # What a failing attempt sent before its error comes again.
    assert len(rows) >= len(whole["rows"])
