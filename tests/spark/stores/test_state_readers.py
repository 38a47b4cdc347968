"""Spark's state readers show the same state for a checkpoint of Holdfast as for one of RocksDB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from support import TESTS
from support.spark.java_side import compiled
from support.spark.minors import INSTALLED, is_older_than
from support.spark.operator_cases import (
    Frames,
    count_and_sum,
    joined,
    late_after_10_minutes,
    windows,
)
from support.spark.operator_inputs import BATCHES, events
from support.spark.processors import Everything
from support.spark.queries import (
    CHECKSUMS,
    PROVIDERS,
    STATE,
    Batches,
    canonical,
    require_served_by,
    run,
    select_provider,
    settings,
)
from support.spark.transform_with_state_cases import transformed

pytestmark = pytest.mark.versions

PARTITIONS = 3
IS_4_0 = INSTALLED == "4.0"
#: On Spark 4.0 no reader knows format 2 of Spark's own provider, so that has format 1 there.
ROCKSDB_FORMAT = "1" if IS_4_0 else "2"
HAS_CHECKSUMS = not is_older_than("4.2")
# Every query has this batch; with a watermark, batches without data follow.
LAST = BATCHES - 1


def everything(frames: Frames) -> DataFrame:
    stream = late_after_10_minutes(frames["events"])
    return transformed(stream, Everything, pandas=IS_4_0, mode="update", time="EventTime")


def full_join(frames: Frames) -> DataFrame:
    return joined(frames, "fullouter")


QUERIES: Mapping[str, tuple[Callable[[Frames], DataFrame], str, int]] = {
    "aggregation": (count_and_sum, "update", 1),
    "windows": (windows, "append", 1),
    "join": (full_join, "append", 2),
    "transformWithState": (everything, "update", 1),
}


class Checkpoints:
    """The checkpoint that a query left on each provider, made when it is first asked for.

    Attributes
    ----------
    rows
        What the queries gave, by query and provider.
    """

    def __init__(self, spark: SparkSession, folder: Path, more: dict[str, str]) -> None:
        self.spark = spark
        self.folder = folder
        self.more = more
        self.rows: dict[tuple[str, str], Batches] = {}

    def path(self, name: str, provider: str) -> Path:
        folder = self.folder / f"{name}-{provider}"
        if not folder.exists():
            query, mode, streams = QUERIES[name]
            select_provider(self.spark, provider)
            wanted = {
                "spark.sql.shuffle.partitions": str(PARTITIONS),
                # What RocksDB needs for the change feed.
                STATE + "rocksdb.changelogCheckpointing.enabled": "true",
                **self._settings(provider),
            }
            try:
                with settings(self.spark, wanted):
                    self.rows[name, provider] = run(
                        self.spark,
                        inputs={("events", "others")[n]: events(n) for n in range(streams)},
                        query=query,
                        mode=mode,
                        folder=folder,
                    )
            finally:
                select_provider(self.spark, "holdfast")
        return folder / "checkpoint"

    def _settings(self, provider: str) -> dict[str, str]:
        if provider != "rocksdb" or ROCKSDB_FORMAT == "2":
            return dict(self.more)
        selected = {"providerClass": PROVIDERS[provider], "checkpointFormatVersion": ROCKSDB_FORMAT}
        return {STATE + key: value for key, value in selected.items()} | self.more

    def read(self, name: str, provider: str, **options: Any) -> list[Row]:
        """Rows of the ``statestore`` reader."""
        return self.read_with("statestore", name, provider, **options)

    def read_with(self, reader: str, name: str, provider: str, **options: Any) -> list[Row]:
        """Rows of one of Spark's readers."""
        path = str(self.path(name, provider))
        with settings(self.spark, self._settings(provider)):
            return self.spark.read.format(reader).options(**options).load(path).collect()

    def state(self, name: str, provider: str, options: Mapping[str, Any]) -> list[Any]:
        """The same in a canonical order."""
        return canonical(self.read(name, provider, **options))


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=pytest.mark.full)],
    ids=["", "checksums"],
)
def checkpoints(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoints:
    """Once as they are by default, once with Spark's row checksums."""
    if request.param and not HAS_CHECKSUMS:
        pytest.skip("Row checksums are in Spark 4.2 and newer")
    folder = tmp_path_factory.mktemp("checkpoints")
    return Checkpoints(spark, folder, CHECKSUMS if request.param else {})


@pytest.mark.parametrize("name", QUERIES)
def test_the_rows_of_the_query_are_those_of_rocksdb(name: str, checkpoints: Checkpoints) -> None:
    for provider in ("rocksdb", "holdfast"):
        checkpoint = checkpoints.path(name, provider)
        if provider == "holdfast" or ROCKSDB_FORMAT == "2":
            require_served_by(provider, checkpoint)
        conf = json.loads((checkpoint / "offsets" / "0").read_text().split("\n")[1])["conf"]
        assert conf[STATE + "providerClass"] == PROVIDERS[provider]
        checksums = "true" if checkpoints.more else "false"
        assert conf.get(STATE + "rowChecksum.enabled") == (checksums if HAS_CHECKSUMS else None)
    expected = checkpoints.rows[name, "rocksdb"]
    assert sum(map(len, expected.values())) > 0
    assert checkpoints.rows[name, "holdfast"] == expected


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


# State that has one value per key, by the columns of the key, and lists.
VALUES = [
    ("aggregation", {}, ["key"]),
    ("windows", {}, ["key"]),
    ("join", {"storeName": "left-keyWithIndexToValue"}, ["key"]),
    ("transformWithState", {"stateVarName": "n"}, ["key"]),
    ("transformWithState", {"stateVarName": "slots"}, ["key", "user_map_key"]),
]
LISTS = ["values", "latest"]

#: Lists that are set to several values at a time. On Spark 4.1 and 4.2, RocksDB's change feed has
#: the first alone of these.
SHORTENED = {"latest"} if INSTALLED in ("4.1", "4.2") else set()
FEED = {"readChangeFeed": True, "changeStartBatchId": 1, "changeEndBatchId": LAST}

# Partition and key.
Place = tuple[Any, ...]


@pytest.mark.parametrize(("name", "options", "keys"), VALUES, ids=str)
def test_the_change_feed_is_that_of_rocksdb(
    name: str, options: dict[str, Any], keys: list[str], checkpoints: Checkpoints
) -> None:
    def split(row: Row) -> tuple[Place, Any]:
        value = row["user_map_value" if "user_map_key" in keys else "value"]
        return (row["partition_id"], *(row[key] for key in keys)), value

    def changes(provider: str) -> dict[Any, Any]:
        """What every batch did to every key: RocksDB also logs what it replaced in the same batch,
        and removals of keys that were not there."""
        known = dict(map(split, before))
        last: dict[Any, Any] = {}
        for row in checkpoints.read(name, provider, **options, **FEED):
            place, value = split(row)
            last[row["batch_id"], place] = (row["change_type"], value)
        effective = {}
        for (batch, place), (kind, value) in sorted(last.items(), key=lambda item: item[0][0]):
            if known.get(place) != value:
                effective[batch, place] = (kind, value)
            known[place] = value
        return effective

    before = checkpoints.read(name, "rocksdb", **options, batchId=0)
    expected = changes("rocksdb")
    assert {batch for batch, _ in expected} >= set(range(1, LAST))
    assert {kind for kind, _ in expected.values()} >= (
        {"update"} if name == "aggregation" else {"update", "delete"}
    )
    assert changes("holdfast") == expected


def after_every_batch(feed: list[Row], before: Mapping[Place, list[Any]]) -> dict[Any, list[Any]]:
    """What a change feed makes of the lists that it names in a batch, by batch and key."""
    lists = {place: list(values) for place, values in before.items()}
    left: dict[Any, list[Any]] = {}
    for row in feed:
        place = (row["partition_id"], row["key"])
        if row["change_type"] != "append":
            lists[place] = []
        if row["change_type"] != "delete":
            lists.setdefault(place, []).append(row["list_element"])
        left[row["batch_id"], place] = list(lists[place])
    return left


@pytest.mark.parametrize("variable", LISTS)
def test_the_change_feed_of_a_list_leads_to_the_lists_of_every_batch(
    variable: str, checkpoints: Checkpoints
) -> None:
    def lists(provider: str, batch: int) -> dict[Place, list[Any]]:
        rows = checkpoints.read(
            "transformWithState", provider, stateVarName=variable, batchId=batch
        )
        found: dict[Place, list[Any]] = {}
        for row in rows:
            found.setdefault((row["partition_id"], row["key"]), []).append(row["list_element"])
        return found

    def feed(provider: str) -> list[Row]:
        return checkpoints.read("transformWithState", provider, stateVarName=variable, **FEED)

    known = lists("rocksdb", 0)
    wrong: dict[str, list[int]] = {"rocksdb": [], "holdfast": []}
    for provider, batches in wrong.items():
        left = after_every_batch(feed(provider), known)
        state = dict(known)
        for batch in range(1, LAST + 1):
            state.update({place: now for (b, place), now in left.items() if b == batch})
            state = {place: values for place, values in state.items() if values}
            batches += [batch] if state != lists("rocksdb", batch) else []
    assert not wrong["holdfast"]
    assert bool(wrong["rocksdb"]) == (variable in SHORTENED), wrong


def in_the_end(feed: list[Row], before: set[Place]) -> Counter[Any]:
    """What is left of the changes of lists without those that the same batch made void."""
    there = set(before)
    found: dict[tuple[int, Place], list[tuple[str, Any]]] = {}
    at_start: dict[tuple[int, Place], bool] = {}
    for row in feed:
        place = (row["partition_id"], row["key"])
        change = (row["batch_id"], place)
        was_there = at_start.setdefault(change, place in there)
        left = found.setdefault(change, [])
        if row["change_type"] != "append":
            left.clear()
        if row["change_type"] == "delete":
            left += [("delete", None)] if was_there else []
            there.discard(place)
        else:
            left.append((row["change_type"], row["list_element"]))
            there.add(place)
    return Counter((*change, *entry) for change, left in found.items() for entry in left)


@pytest.mark.parametrize("variable", LISTS)
def test_the_change_feed_of_a_list_says_what_rocksdb_says_in_the_end(
    variable: str, checkpoints: Checkpoints
) -> None:
    def read(provider: str, **options: Any) -> list[Row]:
        return checkpoints.read("transformWithState", provider, stateVarName=variable, **options)

    before = {(row["partition_id"], row["key"]) for row in read("rocksdb", batchId=0)}
    expected = in_the_end(read("rocksdb", **FEED), before)
    assert {kind for *_, kind, _ in expected} >= {"append"}
    mine = read("holdfast", **FEED)
    found = in_the_end(mine, before)
    if variable in SHORTENED:
        lacking = found - expected
        assert {kind for *_, kind, _ in lacking} == {"append"}
        expected += lacking
    assert found == expected
    # Nothing in it is void.
    assert len(mine) == expected.total()


@pytest.mark.parametrize(
    ("name", "options", "keys"),
    [
        *VALUES,
        ("transformWithState", {"stateVarName": "latest"}, ["key"]),
    ],
    ids=str,
)
def test_a_change_feed_puts_or_removes_a_key_at_most_once_in_a_batch(
    name: str, options: dict[str, Any], keys: list[str], checkpoints: Checkpoints
) -> None:
    feed = checkpoints.read(name, "holdfast", **options, **FEED)
    changes = Counter(
        (row["batch_id"], row["partition_id"], *(row[key] for key in keys))
        for row in feed
        if row["change_type"] != "append"
    )
    assert len(changes) > 0
    assert set(changes.values()) == {1}


JOURNAL = STATE + "holdfast.changeJournal"


@pytest.fixture(scope="module")
def journals(checkpoints: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """The same queries, which record every change."""
    folder = tmp_path_factory.mktemp("journals")
    return Checkpoints(checkpoints.spark, folder, {**checkpoints.more, JOURNAL: "true"})


def by_key(feed: list[Row], keys: list[str]) -> dict[tuple[int, Place], list[tuple[str, Any]]]:
    """What a feed says of each key, in its order, by batch."""
    found: dict[tuple[int, Place], list[tuple[str, Any]]] = {}
    for row in feed:
        place = (row["batch_id"], (row["partition_id"], *(row[key] for key in keys)))
        (value,) = (row[name] for name in VALUE_COLUMNS if name in row.__fields__)
        found.setdefault(place, []).append((row["change_type"], value))
    return found


VALUE_COLUMNS = ("value", "user_map_value", "list_element")


@pytest.mark.parametrize(
    ("name", "options", "keys", "repeats"),
    [
        ("aggregation", {}, ["key"], False),
        ("windows", {}, ["key"], True),
        ("join", {"storeName": "left-keyWithIndexToValue"}, ["key"], True),
        ("join", {"storeName": "right-keyToNumValues"}, ["key"], True),
        ("transformWithState", {"stateVarName": "n"}, ["key"], True),
        ("transformWithState", {"stateVarName": "slots"}, ["key", "user_map_key"], True),
        ("transformWithState", {"stateVarName": "values"}, ["key"], True),
        ("transformWithState", {"stateVarName": "latest"}, ["key"], True),
    ],
    ids=str,
)
def test_with_a_journal_the_change_feed_has_every_change_that_rocksdb_shows(
    name: str,
    options: dict[str, Any],
    keys: list[str],
    repeats: bool,
    checkpoints: Checkpoints,
    journals: Checkpoints,
) -> None:
    expected = by_key(checkpoints.read(name, "rocksdb", **options, **FEED), keys)
    found = by_key(journals.read(name, "holdfast", **options, **FEED), keys)
    assert journals.rows[name, "holdfast"] == checkpoints.rows[name, "rocksdb"]
    assert any(len(changes) > 1 for changes in found.values()) == repeats
    if options.get("stateVarName") in SHORTENED:
        # RocksDB's feed lacks values that a list was set to; what was put first is in both.
        for changes in [*expected.values(), *found.values()]:
            changes[:] = [change for change in changes if change[0] != "append"]
        found = {place: changes for place, changes in found.items() if changes}
        expected = {place: changes for place, changes in expected.items() if changes}
    assert found == expected


def test_a_query_may_begin_to_keep_journals_when_it_is_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    commits = tmp_path / "checkpoint" / "commits"
    first_of_part: list[int] = []

    def query(frames: Frames) -> DataFrame:
        done = [int(entry.name) for entry in commits.glob("[0-9]*")]
        first_of_part.append(max(done, default=-1) + 1)
        spark.conf.set(JOURNAL, "true" if done else "false")
        return full_join(frames)

    def at_most(batches: dict[str, Any]) -> int:
        feed = spark.read.format("statestore").options(
            readChangeFeed=True, storeName="left-keyToNumValues", **batches
        )
        rows = feed.load(str(tmp_path / "checkpoint")).collect()
        return max(map(len, by_key(rows, ["key"]).values()))

    with settings(spark, {"spark.sql.shuffle.partitions": str(PARTITIONS), JOURNAL: "false"}):
        inputs = {name: events(n) for n, name in enumerate(("events", "others"))}
        run(spark, inputs=inputs, query=query, mode="append", folder=tmp_path)
        before, since = first_of_part
        assert (before, since > 1) == (0, True)
        assert at_most({"changeStartBatchId": 0, "changeEndBatchId": since - 1}) == 1
        assert at_most({"changeStartBatchId": since}) > 1


READ_CHANGES = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.spark.queries import builder
import holdfast
folder = Path({folder!r})
settings = {{
    "spark.driver.extraClassPath": {classes!r},
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


@pytest.mark.full
def test_the_tasks_of_a_change_feed_read_each_entry_of_the_commit_log_once(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    script = READ_CHANGES.format(
        tests=str(TESTS),
        folder=str(tmp_path),
        classes=str(compiled("CountedFileSystem")),
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


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(0, marks=pytest.mark.full),
        2,
        pytest.param(BATCHES // 2, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aggregation", {}),
        ("join", {"joinSide": "left"}),
        ("join", {"joinSide": "right"}),
        ("transformWithState", {"stateVarName": "n"}),
        ("transformWithState", {"stateVarName": "latest"}),
        ("transformWithState", {"stateVarName": "slots"}),
    ],
    ids=str,
)
def test_state_rebuilt_from_an_older_batch_is_the_state_of_the_batch(
    name: str, options: dict[str, Any], start: int, checkpoints: Checkpoints
) -> None:
    batch = {"batchId": LAST, **options}
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
    name: str, checkpoints: Checkpoints
) -> None:
    def metadata(provider: str) -> list[Any]:
        return canonical(checkpoints.read_with("state-metadata", name, provider))

    expected = metadata("rocksdb")
    assert expected
    assert metadata("holdfast") == expected
