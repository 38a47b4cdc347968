"""Spark's own files of a checkpoint, its logs first of all: what has its name is on the disk.

A machine that loses its power keeps what was synced. An entry that has its name and nothing in it
keeps a query from being started again; and where the offsets of a batch are gone that a sink has
taken, other rows come under the number of that batch, which a sink that knows it leaves out.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import support.spark
from support import environment, preloadable
from support.spark.faults import LOCAL, World
from support.spark.log_files import LOGS, TAKEN, Files
from support.spark.queries import write_batch

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.timeout(600)]

SOURCE = Path(support.spark.__file__).with_name("noted_calls.c")
BATCHES = 3


@dataclass(frozen=True)
class Call:
    """A line of noted_calls.c."""

    what: str
    size: int
    path: Path
    before: Path | None


#: A query without state, on the input folder and each of the checkpoints that it is given.
QUERY = """
import sys

import holdfast
from support.spark.queries import builder, source

folder, warehouse, *checkpoints = sys.argv[1:]
session = holdfast.configure(builder("local[1]", warehouse)).getOrCreate()
for checkpoint in checkpoints:
    stream = source(session, folder).writeStream.format("noop")
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
session.stop()
"""

#: As above with state, whose number of keys is read and printed for each checkpoint.
COUNTS = """
import sys

import holdfast
from support.spark.queries import builder, source

folder, warehouse, *checkpoints = sys.argv[1:]
session = holdfast.configure(builder("local[1]", warehouse)).getOrCreate()
for checkpoint in checkpoints:
    stream = source(session, folder).groupBy("key").count().writeStream.format("noop")
    stream = stream.outputMode("update").option("checkpointLocation", checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()
    print(session.read.format("statestore").load(checkpoint).count())
session.stop()
"""

#: Where a checkpoint may lie: below names that Spark uses inside of one, and inside of another.
PLACES = (
    "state/2026/11",
    "state/2026/11/12",
    "state",
    "offsets",
    "commits/3",
    "sources/0/sources",
    "2026",
    "2026/inner/state/0/0",
    "2026/commits/offsets",
)


@dataclass(frozen=True)
class Noted:
    """What notes the calls of a process, and where."""

    library: Path
    file: Path

    def environment(self, preloaded: str = "") -> dict[str, str]:
        return {
            "LD_PRELOAD": f"{self.library} {preloaded}".strip(),
            "NOTED_CALLS": str(self.file),
        }

    def calls(self) -> list[Call]:
        found = []
        for line in self.file.read_text().splitlines():
            what, size, path, *before = line.split(" ")
            found.append(Call(what, int(size), Path(path), Path(before[0]) if before else None))
        return found


@pytest.fixture
def noted(tmp_path: Path) -> Noted:
    return Noted(preloadable(SOURCE, tmp_path), tmp_path / "noted.txt")


def test_a_local_entry_is_synced_before_it_has_its_name_and_its_folder_afterwards(
    world: World, noted: Noted
) -> None:
    world.feed(BATCHES)
    world.environment |= noted.environment(world.environment["LD_PRELOAD"])
    world.start(LOCAL).finish()
    found = noted.calls()
    names = {
        call.path: place
        for place, call in enumerate(found)
        if call.what == "name" and world.checkpoint in call.path.parents
    }
    logs = [world.checkpoint / log / str(number) for number in range(BATCHES) for log in LOGS]
    state = world.checkpoint / "state"
    of_state = [path for path in names if state in path.parents and not path.name.startswith(".")]
    assert {path.name for path in of_state} >= {"metadata", "schema", "holdfast.json"}, of_state
    for path in (world.checkpoint / "metadata", *logs, *of_state):
        place = names[path]
        given = found[place]
        assert given.size == path.stat().st_size > 0
        # All of it, under the name that it had before.
        assert Call("sync", given.size, given.before or path, None) in found[:place], path
        twin = names[path.with_name(f".{path.name}.crc")]
        assert Call("sync", found[twin].size, found[twin].before or path, None) in found[:twin]
        # The folder of both, before the next name is given in any log of the query.
        after = found[place + 1 :]
        folder_synced = after.index(Call("sync", 0, path.parent, None))
        others = [n for n, call in enumerate(after) if call.what == "name" and call.path in logs]
        assert folder_synced < min(others, default=len(after)), path
    for folder in (world.checkpoint, *(world.checkpoint / log for log in LOGS)):
        made = found.index(Call("folder", 0, folder, None))
        assert Call("sync", 0, folder.parent, None) in found[made:], folder


def test_entries_are_synced_where_there_are_no_links(noted: Noted, tmp_path: Path) -> None:
    """As by Spark's own way, two writers may then both find a name free; nothing else is lost."""
    (tmp_path / "in").mkdir()
    checkpoint = tmp_path / "checkpoint"
    for batch in range(BATCHES):
        write_batch(tmp_path / "in", batch, [{"key": batch}])
    subprocess.run(
        [sys.executable, "-c", QUERY, *map(str, (tmp_path / "in", tmp_path / "w", checkpoint))],
        env=environment(noted.environment() | {"NO_LINKS": "1"}),
        cwd=tmp_path,
        timeout=250,
        check=True,
    )
    found = noted.calls()
    for log in LOGS:
        for batch in range(BATCHES):
            path = checkpoint / log / str(batch)
            (place,) = (
                n for n, call in enumerate(found) if (call.what, call.path) == ("name", path)
            )
            given = found[place]
            assert Call("sync", given.size, given.before or path, None) in found[:place], path
            assert Call("sync", 0, path.parent, None) in found[place:], path


def test_the_place_of_a_checkpoint_changes_nothing(noted: Noted, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    checkpoints = [tmp_path / "data" / place for place in PLACES]
    for batch in range(2):
        write_batch(tmp_path / "in", batch, [{"key": batch}])
        done = subprocess.run(
            [sys.executable, "-c", COUNTS, str(tmp_path / "in"), str(tmp_path / "w"), *checkpoints],
            env=environment(noted.environment()),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            timeout=400,
            check=True,
        )
        # Also after a restart, each has its own state.
        assert done.stdout.split() == [str(batch + 1)] * len(PLACES)
    found = noted.calls()
    for checkpoint in checkpoints:
        logs = [checkpoint / log / str(batch) for log in LOGS for batch in range(2)]
        schema = checkpoint / "state" / "0" / "0" / "_metadata" / "schema"
        for path in (checkpoint / "metadata", schema, checkpoint / "state/holdfast.json", *logs):
            (place,) = (n for n, c in enumerate(found) if (c.what, c.path) == ("name", path))
            given = found[place]
            assert Call("sync", given.size, given.before or path, None) in found[:place], path
            assert Call("sync", 0, path.parent, None) in found[place:], path
        made = found.index(Call("folder", 0, checkpoint, None))
        assert Call("sync", 0, checkpoint.parent, None) in found[made:], checkpoint


def test_a_log_of_a_source_may_have_the_name_of_the_commit_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, f"file:{tmp_path}/checkpoint/sources/0/commits")
    files.write("0", b"v1\nno JSON")
    assert files.read("0") == b"v1\nno JSON"


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, f"file:{tmp_path}/checkpoint/sources/0")


@pytest.fixture
def folder(files: Files, tmp_path: Path) -> Path:
    return tmp_path / "checkpoint" / "sources" / "0"


def test_of_two_that_write_an_entry_one_has_it(files: Files, folder: Path) -> None:
    first, second = files.begin("0", b"first"), files.begin("0", b"second")
    first.close()
    with pytest.raises(Py4JJavaError, match=TAKEN):
        second.close()
    assert files.read("0") == b"first"
    assert sorted(os.listdir(folder)) == [".0.crc", "0"]


def test_an_entry_that_is_given_up_leaves_nothing(files: Files, folder: Path) -> None:
    files.begin("0", b"some").cancel()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000, 1 << 20])
def test_hadoop_finds_damage_by_the_checksums(files: Files, folder: Path, size: int) -> None:
    content = bytes(n * 7 % 256 for n in range(size))
    files.write("0", content)
    assert files.read("0") == content
    if size:
        damaged = bytearray(content)
        damaged[-1] ^= 1
        (folder / "0").write_bytes(damaged)
        with pytest.raises(Py4JJavaError, match="ChecksumException"):
            files.read("0")


def test_what_is_written_anew_has_checksums_of_its_own(files: Files, folder: Path) -> None:
    files.write("0", b"first")
    files.write("0", b"second", overwrite=True)
    assert files.read("0") == b"second"
    # As somebody does who takes a batch back by hand, and does not see the hidden file.
    (folder / "0").unlink()
    files.write("0", b"the third")
    assert files.read("0") == b"the third"
    assert sorted(os.listdir(folder)) == [".0.crc", "0"]


def test_an_error_says_why_a_file_cannot_be_created(files: Files, folder: Path) -> None:
    folder.rmdir()
    folder.write_text("in the way")
    with pytest.raises(Py4JJavaError) as raised:
        files.begin("0", b"some")
    said = raised.value.java_exception.getMessage()
    assert re.fullmatch(r"Cannot create file:.*/sources/0/0: .*: Not a directory", said), said


def test_nobody_may_read_more_than_hadoop_is_told_to_let(files: Files, folder: Path) -> None:
    files.conf.set("fs.permissions.umask-mode", "077")
    files.write("0", b"some")
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in ("0", ".0.crc")]
    assert modes == [0o600, 0o600]
