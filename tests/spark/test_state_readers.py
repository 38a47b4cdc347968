"""Spark's state readers show the same state for a checkpoint of Holdfast as for one of RocksDB."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from java_side import compile_helpers
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


READ_CHANGES = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from support import builder
import holdfast
folder = Path({folder!r})
settings = {{
    "spark.driver.extraClassPath": str(folder / "classes"),
    "spark.hadoop.fs.counted.impl": "CountedFileSystem",
    "spark.hadoop.fs.counted.log": str(folder / "opened"),
}}
session = builder("local[2]", folder / "warehouse").config(map=settings)
spark = holdfast.configure(session).getOrCreate()
changes = spark.read.format("statestore").options(
    readChangeFeed=True, changeStartBatchId=1, changeEndBatchId={last}
)
print("changes:", changes.load("counted:{checkpoint}").count())
"""


def test_the_tasks_of_a_change_feed_read_each_entry_of_the_commit_log_once(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    (tmp_path / "classes").mkdir()
    compile_helpers(tmp_path / "classes", only="CountedFileSystem")
    script = READ_CHANGES.format(
        support=str(Path(__file__).parent),
        folder=str(tmp_path),
        checkpoint=checkpoints.path("aggregation", "holdfast"),
        last=LAST,
    )
    # In a process of its own: the class path of a JVM is fixed when it starts.
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("changes: "))
    assert int(said.split()[1]) > 0
    opened = map(Path, (tmp_path / "opened").read_text().splitlines())
    entries = Counter(int(path.name) for path in opened if path.parent.name == "commits")
    # Whatever the number of partitions.
    assert entries == dict.fromkeys(range(1, LAST + 1), 1)


def test_the_change_feed_of_a_checkpoint_that_took_the_place_of_another_is_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    def changes(value: int) -> set[Any]:
        folder, place = tmp_path / str(value), tmp_path / "place"
        run(
            spark,
            inputs={"events": [[{"key": key, "value": value} for key in range(20)]] * 2},
            query=lambda frames: frames["events"].groupBy("key").sum("value"),
            mode="update",
            folder=folder,
        )
        (folder / "checkpoint").rename(place)
        feed = spark.read.format("statestore").options(readChangeFeed=True, changeStartBatchId=0)
        rows = feed.load(str(place)).collect()
        shutil.rmtree(place)
        return {(row["batch_id"], row["value"][0]) for row in rows}

    assert changes(value=5) == {(0, 5), (1, 10)}
    assert changes(value=7) == {(0, 7), (1, 14)}


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
