"""`OpenedState.diff` and `OpenedState.watch` show how the state of a query changed."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem
from pyspark.sql import SparkSession

import holdfast
from support import commands
from support.spark.faults import LOCAL, World
from support.spark.operator_cases import count_and_sum
from support.spark.operator_inputs import DWINDLING, dwindling, events
from support.spark.queries import EVICTING, drain, run, settings, source, write_batch
from support.spark.state_changes import apply, content, differences, expected

KEYS = 200_000
CHANGED = 100


@pytest.fixture(scope="module")
def totals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of sums whose batches have changelogs, delta runs and base images."""
    folder = tmp_path_factory.mktemp("totals")
    with settings(spark, EVICTING):
        run(
            spark,
            inputs={"events": dwindling()},
            query=count_and_sum,
            mode="update",
            folder=folder,
            rest_s=0.6,
        )
    return folder / "checkpoint"


def test_differences_are_those_of_all_rows(totals: Path) -> None:
    states = [holdfast.open_state(totals, batch=batch) for batch in range(len(DWINDLING))]
    rows = [content(state.to_arrow(), 1) for state in states]
    for before, after in permutations(range(len(states)), 2):
        found = states[before].diff(states[after])
        assert differences(found, 1) == expected(rows[before], rows[after])
    assert states[3].diff(states[3]).read_all().num_rows == 0


def test_sql_takes_differences(totals: Path) -> None:
    with (
        holdfast.open_state(totals, batch=3) as before,
        holdfast.open_state(totals) as after,
    ):
        changes = before.diff(after)
        assert changes.schema.names == ["key", "change", "before", "after"]
        found = duckdb.sql(
            """select sum(coalesce(after."sum", 0) - coalesce(before."sum", 0)) from changes"""
        ).fetchall()
        sums = [sum(one.to_arrow()["sum"].to_pylist()) for one in (before, after)]
        assert int(found[0][0]) == sums[1] - sums[0]


def test_watched_changes_make_the_later_states(totals: Path) -> None:
    with holdfast.open_state(totals, batch=0) as state:
        rows = content(state.to_arrow(), 1)
        batches = []
        for batch, changes in state.watch(until=lambda: True):
            apply(rows, changes, 1)
            with holdfast.open_state(totals, batch=batch) as now:
                assert rows == content(now.to_arrow(), 1)
            batches.append(batch)
        assert batches == [*range(1, len(DWINDLING))]


def test_the_command_prints_differences(
    totals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        holdfast.open_state(totals, batch=2) as before,
        holdfast.open_state(totals, batch=4) as after,
    ):
        table = before.diff(after).read_all()
    changes = table["change"].to_pylist()
    counts = ", ".join(f"{changes.count(one)} {one}" for one in ("added", "removed", "changed"))
    said = f"holdfast: batch 2 to 4: {counts}"
    status, out, err = commands.run(capsys, "diff", totals, 2, 4)
    assert (status, out[0].split(), len(out)) == (0, table.schema.names, 51)
    assert "the first 50 rows" in err
    assert said in err
    status, out, err = commands.run(capsys, "diff", totals, 2, 4, "--json")
    assert [json.loads(line) for line in out] == table.to_pylist()
    assert said in err
    file = tmp_path / "rows.parquet"
    assert commands.run(capsys, "diff", totals, 2, 4, "--parquet", file)[0] == 0
    assert pq.read_table(file).equals(table)
    assert commands.run(capsys, "diff", totals, 2, 99)[0] == 1
    assert commands.run(capsys, "diff", totals, 2, 4, "--store", "left")[0] == 2


def test_states_of_different_stores_are_not_compared(
    totals: Path, spark: SparkSession, tmp_path: Path
) -> None:
    write_batch(tmp_path, 0, events(batches=1)[0])
    distinct = source(spark, tmp_path).dropDuplicates(["key"])
    drain(distinct, checkpoint=tmp_path / "checkpoint", mode="append", into={})
    with (
        holdfast.open_state(totals) as sums,
        holdfast.open_state(tmp_path / "checkpoint") as keys,
        pytest.raises(ValueError, match=r"two states of one store, found .*'sum int64'.*, and"),
    ):
        sums.diff(keys)


def test_a_batch_that_changes_nothing_is_watched_too(spark: SparkSession, tmp_path: Path) -> None:
    rows = events(batches=1)[0]
    run(
        spark,
        inputs={"events": [rows, rows, [{**rows[0], "key": "new"}]]},
        query=lambda frames: frames["events"].dropDuplicates(["key"]),
        mode="append",
        folder=tmp_path,
    )
    with holdfast.open_state(tmp_path / "checkpoint", batch=0) as state:
        watched = list(state.watch(until=lambda: True))
    assert [(batch, changes.num_rows) for batch, changes in watched] == [(1, 0), (2, 1)]
    assert watched[0].rows.schema == watched[1].rows.schema
    assert watched[1].rows["key"].to_pylist() == ["new"]


def test_a_watch_ends_when_it_is_left_or_the_state_is_closed(totals: Path) -> None:
    state = holdfast.open_state(totals, batch=2)
    for batch, _ in state.watch():
        assert batch == 3
        break
    left = state.watch(poll_s=0.01)
    later = [next(left).batch_id for _ in range(3, len(DWINDLING))]
    assert later == [*range(3, len(DWINDLING))]
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(next, left, None)
        state.close()
        assert waiting.result() is None
    with pytest.raises(ValueError, match="closed"):
        next(state.watch())


def test_a_watch_names_batches_that_the_query_cleaned_up(totals: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(totals, tmp_path / "copy")
    state = holdfast.open_state(copy, batch=0)
    watched = state.watch()
    assert next(watched).batch_id == 1
    for batch in (0, 1, 2, 3):
        (copy / "commits" / str(batch)).unlink()
    with pytest.raises(FileNotFoundError, match="cleaned up batches 2 to 3 before they were read"):
        next(watched)


class Watcher:
    """Applies the changes of a running query in a thread."""

    def __init__(self, checkpoint: Path) -> None:
        self.state = holdfast.open_state(checkpoint, batch=0)
        self.rows = content(self.state.to_arrow(), 1)
        self.batches: list[int] = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self) -> None:
        for batch, changes in self.state.watch(poll_s=0.05, until=self.is_over.is_set):
            apply(self.rows, changes, 1)
            self.batches.append(batch)

    def finish(self) -> None:
        self.is_over.set()
        self.thread.join()


@pytest.mark.parametrize(
    ("batches", "kills"),
    [(8, [3]), pytest.param(500, [120, 250, 251, 380], marks=pytest.mark.full)],
)
def test_a_watch_goes_on_while_the_query_is_killed_and_restarted(
    world: World, batches: int, kills: list[int]
) -> None:
    retained = {"spark__sql__streaming__minBatchesToRetain": str(batches)}
    world.feed(batches)
    job = world.start(LOCAL, **retained)
    job.wait_until("the first batch", lambda: world.is_committed(0))
    watcher = Watcher(world.checkpoint)
    for kill in kills:
        job.wait_until(f"batch {kill}", lambda kill=kill: world.is_committed(kill))
        job.kill()
        job = world.start(LOCAL, **retained)
    job.finish()
    watcher.finish()
    assert watcher.batches == [*range(1, world.last_committed() + 1)]
    with holdfast.open_state(world.checkpoint) as state:
        assert watcher.rows == content(state.to_arrow(), 1)


class CountedFiles:
    """The local file system, which counts the bytes of reads."""

    type_name = "counted"

    def __init__(self) -> None:
        self.bytes = 0
        self.files = LocalFileSystem()

    def get_file_info(self, what: Any) -> Any:
        return self.files.get_file_info(what)

    def open_input_file(self, path: str) -> Any:
        return CountedFile(self, self.files.open_input_file(path))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.files, name)


class CountedFile:
    def __init__(self, files: CountedFiles, file: pa.NativeFile) -> None:
        self.files = files
        self.file = file

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def size(self) -> int:
        return int(self.file.size())

    def read(self) -> bytes:
        return self.read_at(self.size(), 0)

    def read_at(self, count: int, offset: int) -> bytes:
        read: bytes = self.file.read_at(count, offset)
        self.files.bytes += len(read)
        return read


def test_differences_read_little_of_a_large_state(spark: SparkSession, tmp_path: Path) -> None:
    first = [{"key": sha256(b"%d" % n).hexdigest(), "value": n} for n in range(KEYS)]
    later = [{**first[n], "value": 1} for n in range(CHANGED + 2)]
    # A large run has a file of its own.
    with settings(spark, {**EVICTING, "spark.sql.shuffle.partitions": "1"}):
        run(
            spark,
            inputs={"events": [first, later[:1], later[1:2], later[2:]]},
            query=count_and_sum,
            mode="update",
            folder=tmp_path,
            parts=1,
            rest_s=0.6,
        )
    files: Any = CountedFiles()
    path = str(tmp_path / "checkpoint")
    with (
        holdfast.open_state(path, batch=2, filesystem=files) as before,
        holdfast.open_state(path, batch=3, filesystem=files) as after,
    ):
        found = before.diff(after).read_all()
        assert found.num_rows == CHANGED
        little, files.bytes = files.bytes, 0
        (watched,) = before.watch(until=lambda: True)
        assert watched.rows.num_rows == CHANGED
        least, files.bytes = files.bytes, 0
        assert before.to_arrow().num_rows == KEYS
        assert little < files.bytes / 5
        assert least < files.bytes / 20
