"""``holdfast adopt``, ``undo``, ``leave``: a moved query gives the rows of an undisturbed run."""

from __future__ import annotations

import json
import shutil
from operator import attrgetter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from holdfast.cli import local_spark, moves
from holdfast.files.paths import any_folder
from support import commands
from support.spark.cases import CASES
from support.spark.commands import run_commands
from support.spark.faults import CLUSTER, World
from support.spark.mini_hdfs import MiniHdfs
from support.spark.moved_queries import (
    BEFORE,
    CHANGELOG,
    SOURCES,
    Command,
    Query,
    entries,
    write_plan,
)
from support.spark.queries import PROVIDERS, STATE, settings
from support.spark.repartitions import repartition

#: For every run of the tests: a way of keeping state each.
QUICK = {
    ("windows-append", "hdfs"),
    ("join-full-append", "rocksdb-changelog"),
    ("transformWithStateOnJvm-update", "rocksdb-v2"),
}

CELLS = [
    pytest.param(name, of, marks=() if (name, of) in QUICK else pytest.mark.full)
    for name in CASES
    for of in SOURCES
    if of != "hdfs" or not name.startswith("transformWithState")
]


#: Providers that get a checkpoint back: name and format.
TARGETS = {"rocksdb": ("rocksdb", "1"), "rocksdb-v2": ("rocksdb", "2"), "hdfs": ("hdfs", "1")}

QUICK_TO_LEAVE = {("windows-append", "hdfs"), ("transformWithStateOnJvm-update", "rocksdb")}

CELLS_TO_LEAVE = [
    pytest.param(name, to, marks=() if (name, to) in QUICK_TO_LEAVE else pytest.mark.full)
    for name in CASES
    for to in TARGETS
    if to != "hdfs" or not name.startswith("transformWithState")
]


@pytest.mark.versions
@pytest.mark.parametrize(("name", "of"), CELLS)
def test_an_adopted_query_gives_the_rows_of_an_undisturbed_run(
    name: str, of: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, name, of, tmp_path)
    query.begin()
    before = entries(query.checkpoint)
    plan = query.plan("adoption")
    assert plan is not None
    estimate = moves.move(spark, any_folder(str(query.checkpoint)), plan, yes=False)
    assert entries(query.checkpoint) == before
    assert not (query.checkpoint / "state" / "holdfast").exists()
    moved = query.adopt()
    # Nothing that was there has changed.
    assert entries(query.checkpoint).items() >= before.items()
    assert query.plan("adoption") is None
    assert [one["name"] for one in estimate["operators"]] == [
        one["name"] for one in moved["operators"]
    ]
    query.go_on()


@pytest.mark.versions
@pytest.mark.parametrize(("name", "to"), CELLS_TO_LEAVE)
def test_a_query_that_leaves_gives_the_rows_of_an_undisturbed_run(
    name: str, to: str, spark: SparkSession, tmp_path: Path
) -> None:
    of = "hdfs" if to == "hdfs" else "rocksdb"
    query, (provider, version) = Query(spark, name, of, tmp_path), TARGETS[to]
    query.begin()
    query.adopt()
    query.go_on()
    before = entries(query.checkpoint)
    query.move("leave", provider, version)
    assert entries(query.checkpoint).items() >= before.items()
    assert query.plan("leave", provider, version) is None
    left = {STATE + "checkpointFormatVersion": version}
    for _ in range(2):
        query.go_on(lambda: query.run_old(query.checkpoint, query.rows, left))


@pytest.mark.versions
@pytest.mark.parametrize(
    "of",
    [pytest.param(of, marks=() if of == "rocksdb-v2" else pytest.mark.full) for of in SOURCES],
)
def test_an_adoption_is_undone(of: str, spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "join-inner-append", of, tmp_path)
    query.begin()
    query.adopt()
    query.move("undo", False)
    assert query.plan("undo", False) is None
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


def test_old_files_are_purged_once_a_batch_has_run(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = Query(spark, "join-inner-append", "rocksdb-changelog-v2", tmp_path)
    query.begin()
    old = set(entries(query.checkpoint))
    folder = any_folder(str(query.checkpoint))
    query.adopt()
    with pytest.raises(OSError, match="are the way back"):
        moves.purgeable(spark, folder)
    query.go_on()
    # Batches of the other provider have no state that these commands read.
    assert commands.run(capsys, "verify", query.checkpoint)[0] == 0
    assert commands.run(capsys, "show", query.checkpoint, "--details")[0] == 0
    batches = moves.purgeable(spark, folder)
    before = entries(query.checkpoint)
    counted = moves.purge(spark, folder, batches, yes=False)
    assert entries(query.checkpoint) == before
    assert moves.purge(spark, folder, batches, yes=True) == {**counted, "purged": True}
    gone = set(before) - set(entries(query.checkpoint))
    (of_adoption,) = counted["adoptions"]
    purged = {name for name in gone if name.startswith("state/") and not name.endswith(".crc")}
    assert of_adoption["files"] >= len(purged) > 0
    assert of_adoption["bytes"] >= sum(len(before[name]) for name in purged)
    kept = {name for name in old if not name.startswith("state/") or "/_" in name}
    assert kept <= set(entries(query.checkpoint))
    assert not list((query.checkpoint / "state").rglob("*.zip"))
    assert moves.purgeable(spark, folder) == []
    query.go_on()
    query.move("leave", "rocksdb", "2")
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


def test_column_families_cannot_leave_to_the_hdfs_backed_provider(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "transformWithStateOnJvm-update", "rocksdb", tmp_path)
    query.begin()
    query.adopt()
    before = entries(query.checkpoint)
    with pytest.raises(OSError, match=r"operator 0 \(transformWithStateExec\): leave to rocksdb"):
        query.move("leave", "hdfs", "1")
    assert entries(query.checkpoint) == before


def test_the_command_says_what_it_would_do_and_does_it(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    before = entries(query.checkpoint)
    code, out, err = Command("adopt", query.checkpoint).end()
    assert code == 0, err
    assert out.split()[:5] == ["operator", "name", "partitions", "rows", "bytes"]
    assert "nothing was changed" in err
    assert entries(query.checkpoint) == before
    code, out, err = Command("adopt", query.checkpoint, "--yes", "--json").end()
    assert code == 0, err
    moved = json.loads(out)
    assert (moved["batch"], moved["from"], moved["moved"]) == (
        max(query.rows) + 1,
        PROVIDERS["rocksdb"],
        True,
    )
    (operator,) = moved["operators"]
    keys = {row["key"] for batch in query.streams["events"][:BEFORE] for row in batch}
    assert (operator["name"], operator["rows"]) == ("stateStoreSave", len(keys))
    code, out, err = Command("adopt", query.checkpoint, "--yes").end()
    assert (code, out) == (0, "")
    assert "nothing to do" in err
    code, out, err = Command("adopt", query.checkpoint, "--yes", "--json").end()
    assert json.loads(out) == {**moved, "from": moved["to"], "moved": False, "ms": 0} | {
        "operators": []
    }
    query.moved.append(moved["batch"])
    query.go_on()
    code, out, err = Command("adopt", query.checkpoint, "--purge", "--yes").end()
    assert code == 0, err
    files, size = out.split()[-2:]
    assert f"deleted {files} files of the old provider, {size} bytes" in err
    code, out, err = Command("adopt", query.checkpoint, "--purge", "--yes", "--json").end()
    assert json.loads(out) == {"purged": False, "adoptions": []}
    assert "no files of an adoption to delete" in err


def test_a_query_that_goes_on_meanwhile_wins(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    plan = query.plan("adoption")
    assert plan is not None
    query.feed(1)
    query.run_old(query.checkpoint, query.rows)
    before = entries(query.checkpoint)
    with pytest.raises(OSError, match="has planned batch"):
        moves.move(spark, any_folder(str(query.checkpoint)), plan, yes=True)
    assert entries(query.checkpoint) == before


def test_a_query_does_not_start_until_the_adoption_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    plan = query.plan("adoption")
    assert plan is not None
    write_plan(query.checkpoint, plan)
    before = entries(query.checkpoint)
    with pytest.raises(StreamingQueryException, match=r"holdfast adopt .* again"):
        query.run_holdfast()
    assert entries(query.checkpoint) == before
    query.adopt()
    query.go_on()


KILLED = {("leave --to rocksdb", "before-entry")}

#: A task writes state, the plan gets its name, and then the entry of ``commits``.
POINTS = [
    pytest.param(command, point, marks=() if (command, point) in KILLED else pytest.mark.full)
    for command, points in {
        "adopt": (
            *("before-append", "torn-append", "after-append"),
            *("before-plan", "after-plan", "before-entry", "after-entry"),
        ),
        "leave --to rocksdb": ("before-plan", "after-plan", "before-entry", "after-entry"),
        "undo": ("before-plan", "after-plan", "before-entry"),
    }.items()
    for point in points
]


@pytest.mark.parametrize(("command", "point"), POINTS)
def test_the_same_command_finishes_one_that_was_killed(
    command: str, point: str, world: World, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "join-inner-append", "rocksdb", tmp_path)
    query.begin()
    if command != "adopt":
        query.adopt()
    if command.startswith("leave"):
        query.go_on()
    world.arm(point, nth=2 if "append" in point else 1)
    name, *options = command.split()
    arguments = (name, query.checkpoint, *options, "--yes")
    killed = Command(*arguments, more=world.environment)
    killed.kill_at(point, world)
    if "append" in point or point == "before-plan":
        # The old query may go on as if nothing had been.
        shutil.copytree(query.checkpoint, tmp_path / "copy")
        if command == "adopt":
            query.run_old(tmp_path / "copy", {})
        else:
            query.run_holdfast(tmp_path / "copy", {})
    code, _, err = Command(*arguments).end()
    assert code == 0, err
    assert ("nothing to do" in err) == (point == "after-entry")
    query.moved.append(max(query.rows) + 1 + (command == "undo"))
    old = None if command == "adopt" else lambda: query.run_old(query.checkpoint, query.rows)
    query.go_on(old)


@pytest.mark.full
def test_of_two_commands_at_once_one_moves_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    both = [Command("adopt", query.checkpoint, "--yes") for _ in range(2)]
    ended = [command.end() for command in both]
    assert 0 in [code for code, _, _ in ended], ended
    query.moved.append(max(query.rows) + 1)
    query.go_on()


def test_changelogs_of_the_session_do_not_change_what_a_command_makes(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    query.adopt()
    query.go_on()
    with settings(spark, CHANGELOG):
        query.move("leave", "rocksdb", "1")
    assert not list((query.checkpoint / "state").rglob("*.changelog"))
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


@pytest.mark.parametrize("of", ["rocksdb", "hdfs"])
def test_damaged_state_is_named(of: str, spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", of, tmp_path)
    query.begin()
    for file in (query.checkpoint / "state/0/1").iterdir():
        if file.name[0].isdecimal() or file.name.startswith("."):
            # Without its checksum, as on an object store.
            file.unlink() if file.suffix == ".crc" else file.write_bytes(b"damaged" * 40)
    with pytest.raises(OSError, match=r"of \S+/state/0/1 \(operator 0, stateStoreSave\): \w+: "):
        query.adopt()


@pytest.mark.parametrize("file", ["_metadata/metadata", "0/_metadata/schema"])
def test_a_damaged_description_is_named(file: str, spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    described = query.checkpoint / "state/0" / file
    described.write_bytes(b"v1")
    described.with_name(f".{described.name}.crc").unlink(missing_ok=True)
    with pytest.raises(OSError, match=r"Spark's descriptions of operator 0 in \S+/state/0: "):
        query.adopt()


def test_a_command_that_fails_leaves_no_state_beside_that_of_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    query.adopt()
    query.go_on()
    plan = query.plan("leave", "rocksdb", "1")
    assert plan is not None
    before = entries(query.checkpoint)
    # Nothing can be written to the log.
    (query.checkpoint / "offsets").rename(tmp_path / "offsets")
    (query.checkpoint / "offsets").touch()
    with pytest.raises(OSError, match="offsets"):
        moves.move(spark, any_folder(str(query.checkpoint)), plan, yes=True)
    assert not list((query.checkpoint / "state").glob("moving-*"))
    (query.checkpoint / "offsets").unlink()
    (tmp_path / "offsets").rename(query.checkpoint / "offsets")
    assert entries(query.checkpoint) == before


@pytest.mark.full
@pytest.mark.parametrize("of", ["rocksdb-changelog", "hdfs"])
def test_a_checkpoint_on_hdfs_is_adopted_and_leaves(
    of: str, hdfs: MiniHdfs, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "join-inner-append", of, tmp_path)
    checkpoint = f"{hdfs.uri}/{tmp_path.name}/checkpoint"

    def run_old() -> None:
        query.run_old(checkpoint, query.rows)

    query.feed(BEFORE)
    run_old()
    query.run_undisturbed()
    query.moved.append(max(query.rows) + 1)
    run_commands({}, {}, ["adopt", checkpoint, "--yes"])
    query.go_on(lambda: query.run_holdfast(checkpoint))
    query.moved.append(max(query.rows) + 1)
    run_commands({}, {}, ["leave", checkpoint, "--to", of.split("-")[0], "--yes"])
    query.go_on(run_old)


#: What a query on RocksDB does to get other partitions: one case in every run of the tests.
IN_A_ROW = [
    pytest.param(
        name,
        partitions,
        way,
        marks=() if (name, partitions, way) == ("join-inner-append", 4, "") else pytest.mark.full,
    )
    for name in ("join-inner-append", "transformWithState-list-update", "windows-append")
    for partitions in (4, 1)
    for way in ("", "--rewrite")
]


@pytest.mark.parametrize(("name", "partitions", "way"), IN_A_ROW)
def test_a_query_on_rocksdb_gets_other_partitions_by_way_of_holdfast(
    name: str, partitions: int, way: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, name, "rocksdb", tmp_path)
    query.begin()
    query.adopt()
    assert repartition(spark, query.checkpoint, partitions, "--yes", *way.split()) == 0
    query.moved.append(query.moved[-1] + 1)
    query.move("leave", "rocksdb", "1")
    for _ in range(2):
        query.go_on(lambda: query.run_old(query.checkpoint, query.rows))
    newest = f"{max(query.rows) + 1}.zip"
    stores = {file.parts for file in (query.checkpoint / "state/0").rglob(newest)}
    place = len(query.checkpoint.parts) + 2
    assert {parts[place] for parts in stores} == set(map(str, range(partitions)))


@pytest.mark.parametrize("advice", ["--format 2", pytest.param("--purge", marks=pytest.mark.full)])
def test_a_folder_does_not_get_files_of_both_formats(
    advice: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb-v2", tmp_path)
    query.begin()
    query.adopt()
    query.go_on()
    before = entries(query.checkpoint)
    folder = any_folder(str(query.checkpoint))
    with pytest.raises(OSError, match="files of both formats") as refused:
        query.move("leave", "rocksdb", "1")
    assert entries(query.checkpoint) == before
    assert advice in str(refused.value)
    version = "2"
    if advice == "--purge":
        version = "1"
        moves.purge(spark, folder, moves.purgeable(spark, folder), yes=True)
    query.move("leave", "rocksdb", version)
    left = {STATE + "checkpointFormatVersion": version}
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows, left))


@pytest.mark.full
@pytest.mark.parametrize(("of", "to"), [("hdfs", "rocksdb"), ("rocksdb-changelog", "hdfs")])
def test_a_query_leaves_to_the_other_provider_of_spark(
    of: str, to: str, spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "join-inner-append", of, tmp_path)
    query.begin()
    query.adopt()
    query.go_on()
    query.move("leave", to, "1")
    left = {STATE + "providerClass": PROVIDERS[to]}
    for _ in range(2):
        query.go_on(lambda: query.run_old(query.checkpoint, query.rows, left))


@pytest.mark.full
def test_commands_run_on_the_executors_of_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, "join-inner-append", "rocksdb", tmp_path)
    query.begin()

    def move(*arguments: object) -> None:
        name, *options = arguments
        command = Command(name, query.checkpoint, *options, "--yes", master=CLUSTER)
        code, _, err = command.end()
        assert code == 0, err
        query.moved.append(max([*query.rows, *query.moved]) + 1)

    move("adopt")
    move("repartition", "--partitions", 3, "--rewrite")
    query.go_on()
    move("leave", "--to", "rocksdb")
    query.go_on(lambda: query.run_old(query.checkpoint, query.rows))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("java.lang.Class.forName", "ClassNotFoundException: none", id="java"),
        pytest.param("java.lang.Integer.parseInt", "NumberFormatException: .*none", id="pyspark"),
    ],
)
def test_errors_of_java_are_errors_of_the_command(
    spark: SparkSession, name: str, error: str
) -> None:
    call = attrgetter(name)(spark._jvm)
    with pytest.raises(OSError, match=error), local_spark.java_errors():
        call("none")


def test_a_session_that_does_not_start_is_an_error_of_the_command(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, "aggregation-update", "rocksdb", tmp_path)
    query.begin()
    code, out, err = Command("adopt", query.checkpoint, master="nowhere").end()
    assert (code, out) == (1, "")
    assert "Master" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
