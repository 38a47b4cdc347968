"""Spark's state readers show the same state for a checkpoint of Holdfast as for one of RocksDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from operator_cases import Frames, count_and_sum, joined, late_after_10_minutes, windows
from operator_inputs import BATCHES, events
from processors import Everything
from support import STATE, canonical, run, select_provider, settings
from transform_with_state_cases import transformed

PARTITIONS = 3
# Every query has this batch; with a watermark, batches without data follow.
LAST = BATCHES - 1


def everything(frames: Frames) -> DataFrame:
    stream = late_after_10_minutes(frames["events"])
    return transformed(stream, Everything, pandas=False, mode="update", time="EventTime")


def full_join(frames: Frames) -> DataFrame:
    return joined(frames, "fullouter")


QUERIES: Mapping[str, tuple[Callable[[Frames], DataFrame], str, int]] = {
    "aggregation": (count_and_sum, "update", 1),
    "windows": (windows, "append", 1),
    "join": (full_join, "append", 2),
    "transformWithState": (everything, "update", 1),
}


class Checkpoints:
    """The checkpoint that a query left on each provider, made when it is first asked for."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def path(self, name: str, provider: str) -> Path:
        folder = self.folder / f"{name}-{provider}"
        if not folder.exists():
            query, mode, streams = QUERIES[name]
            select_provider(self.spark, provider)
            wanted = {
                "spark.sql.shuffle.partitions": str(PARTITIONS),
                # What RocksDB needs for the change feed.
                STATE + "rocksdb.changelogCheckpointing.enabled": "true",
            }
            try:
                with settings(self.spark, wanted):
                    run(
                        self.spark,
                        inputs={("events", "others")[n]: events(n) for n in range(streams)},
                        query=query,
                        mode=mode,
                        folder=folder,
                    )
            finally:
                select_provider(self.spark, "holdfast")
        return folder / "checkpoint"

    def state(self, name: str, provider: str, options: Mapping[str, Any]) -> list[Any]:
        """Rows of the ``statestore`` reader."""
        reader = self.spark.read.format("statestore").options(**options)
        return canonical(reader.load(str(self.path(name, provider))).collect())


@pytest.fixture(scope="module")
def checkpoints(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(spark, tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aggregation", {}),
        ("aggregation", {"batchId": 0}),
        ("aggregation", {"batchId": BATCHES // 2}),
        ("windows", {"batchId": BATCHES // 2}),
        ("join", {"joinSide": "left", "batchId": 2}),
        ("join", {"joinSide": "right", "batchId": 2}),
        ("join", {"storeName": "left-keyToNumValues", "batchId": 2}),
        ("join", {"storeName": "right-keyWithIndexToValue", "batchId": 2}),
        ("transformWithState", {"stateVarName": "n", "batchId": 1}),
        ("transformWithState", {"stateVarName": "n", "batchId": 4}),
        ("transformWithState", {"stateVarName": "values"}),
        ("transformWithState", {"stateVarName": "values", "flattenCollectionTypes": False}),
        ("transformWithState", {"stateVarName": "slots", "batchId": 1}),
        ("transformWithState", {"stateVarName": "slots", "batchId": 4}),
        (
            "transformWithState",
            {"stateVarName": "slots", "flattenCollectionTypes": False, "batchId": 4},
        ),
        ("transformWithState", {"readRegisteredTimers": True, "batchId": 2}),
    ],
    ids=str,
)
def test_the_state_of_a_batch_is_that_of_rocksdb(
    name: str, options: dict[str, Any], checkpoints: Checkpoints
) -> None:
    expected = checkpoints.state(name, "rocksdb", options)
    assert expected
    assert checkpoints.state(name, "holdfast", options) == expected


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aggregation", {}),
        ("windows", {}),
        ("join", {"storeName": "left-keyWithIndexToValue"}),
        ("transformWithState", {"stateVarName": "n"}),
    ],
    ids=str,
)
def test_the_change_feed_is_that_of_rocksdb(
    name: str, options: dict[str, Any], spark: SparkSession, checkpoints: Checkpoints
) -> None:
    def read(provider: str, **more: Any) -> list[Any]:
        reader = spark.read.format("statestore").options(**options, **more)
        return reader.load(str(checkpoints.path(name, provider))).collect()

    def changes(provider: str) -> dict[Any, Any]:
        """What every batch did to every key: RocksDB also logs what it replaced in the same batch,
        and removals of keys that were not there."""
        known = {(row["partition_id"], row["key"]): row["value"] for row in before}
        feed = read(provider, readChangeFeed=True, changeStartBatchId=1, changeEndBatchId=LAST)
        last: dict[Any, Any] = {}
        for row in feed:
            where = (row["partition_id"], row["key"])
            last[row["batch_id"], where] = (row["change_type"], row["value"])
        effective = {}
        for (batch, where), (kind, value) in sorted(last.items(), key=lambda item: item[0][0]):
            if known.get(where) != value:
                effective[batch, where] = (kind, value)
            known[where] = value
        return effective

    before = read("rocksdb", batchId=0)
    expected = changes("rocksdb")
    assert {batch for batch, _ in expected} >= set(range(1, LAST))
    assert changes("holdfast") == expected


@pytest.mark.parametrize("start", [0, 2, BATCHES // 2])
@pytest.mark.parametrize("name", ["aggregation", "transformWithState"])
def test_state_rebuilt_from_an_older_batch_is_the_state_of_the_batch(
    name: str, start: int, checkpoints: Checkpoints
) -> None:
    batch: dict[str, Any] = {"batchId": LAST}
    if name == "transformWithState":
        batch["stateVarName"] = "n"
    everywhere = checkpoints.state(name, "rocksdb", batch)
    for partition in range(PARTITIONS):
        rebuilt = checkpoints.state(
            name,
            "holdfast",
            {**batch, "snapshotStartBatchId": start, "snapshotPartitionId": partition},
        )
        assert rebuilt == [row for row in everywhere if row[-1] == partition]


@pytest.mark.parametrize("name", QUERIES)
def test_the_metadata_of_the_operators_is_that_of_rocksdb(
    name: str, spark: SparkSession, checkpoints: Checkpoints
) -> None:
    def metadata(provider: str) -> list[Any]:
        path = checkpoints.path(name, provider)
        return canonical(spark.read.format("state-metadata").load(str(path)).collect())

    expected = metadata("rocksdb")
    assert expected
    assert metadata("holdfast") == expected
