"""Tags and branches: state that outlives the retained batches, and checkpoints that share it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast._core import CorruptSegmentError
from holdfast.files.mounted import MountedPath
from holdfast.queries import branches, copies, leases
from support import commands
from support.spark.branch_job import Running, detach
from support.spark.cases import CASES
from support.spark.gaps import gap_of
from support.spark.queries import select_provider, source, unload

QUICK = {"aggregation-update", "join-inner-append", "transformWithStateOnJvm-update"}


@pytest.fixture
def totals(spark: SparkSession, tmp_path: Path) -> Running:
    """A query with three batches."""
    query = Running(spark, "aggregation-update", tmp_path)
    query.go_on(3)
    return query


def files(checkpoint: Path) -> set[str]:
    """The physical files of a checkpoint."""
    return {path.name for path in (checkpoint / "state" / "holdfast").glob("*.hf")}


def rows(checkpoint: Path, **chosen: Any) -> list[dict[str, Any]]:
    with holdfast.open_state(checkpoint, **chosen) as state:
        table: pa.Table = state.to_arrow()
        return sorted(table.to_pylist(), key=repr)


@pytest.mark.versions
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in CASES],
)
def test_a_branch_gives_the_rows_of_its_parent(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    if (gap := gap_of(name, partitions=4)) is not None:
        pytest.skip(gap.reason)
    query = Running(spark, name, tmp_path)
    query.go_on(3)
    before = {path: path.read_bytes() for path in files_below(query.local)}
    new = MountedPath(tmp_path / "branch")
    batch = holdfast.branch(query.local, new)
    # Nothing that was there has changed.
    assert before.items() <= {p: p.read_bytes() for p in files_below(query.local)}.items()
    query.write(2)
    theirs, ours = query.run(new), query.run()
    assert min(theirs) == batch + 1
    assert theirs == ours
    # The parent cleans up what only the branch needs.
    ours = query.go_on(3)
    unload(spark)
    assert query.run(new) == ours
    detach(new)
    shutil.rmtree(query.local)
    query.write(1)
    assert query.run(new)


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_a_branch_writes_files_into_an_output_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    query, new = Running(spark, "aggregation-update", tmp_path), tmp_path / "branch"

    def run(checkpoint: Path, output: str) -> int:
        frame = source(spark, tmp_path / "events").withWatermark("time", "1 second")
        written = frame.groupBy("key", "time").count().writeStream.format("parquet")
        written = written.option("path", str(tmp_path / output)).trigger(availableNow=True)
        written.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
        return spark.read.parquet(str(tmp_path / output)).count()

    query.write(2)
    before = run(query.local, "output")
    holdfast.branch(query.local, new)
    query.write(12)
    rows_of_parent = run(query.local, "output")
    # The log of the output is compacted each tenth batch.
    assert run(new, "own") == rows_of_parent - before
    other = tmp_path / "other"
    holdfast.branch(query.local, other, batch=3)
    with pytest.raises(Exception, match="Give the branch an output folder of its own"):
        run(other, "output")


def test_a_tag_keeps_its_state_and_no_other(totals: Running) -> None:
    checkpoint, kept = totals.local, rows(totals.local)
    of_batch = files(checkpoint)
    lease = leases.tag(checkpoint, "before", None)
    totals.go_on(2)
    between = files(checkpoint) - of_batch
    totals.go_on(6)
    totals.go_on_until(lambda: not between <= files(checkpoint), "files between are deleted")
    batches = {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
    assert min(batches) > 4
    assert rows(checkpoint, tag="before") == kept != rows(checkpoint)
    with (
        holdfast.open_state(checkpoint, tag="before") as state,
        pytest.raises(NotImplementedError, match="cannot be watched"),
    ):
        next(state.watch())
    with pytest.raises(FileNotFoundError, match="expected batch 2"):
        holdfast.open_state(checkpoint, batch=2)
    (kept_bytes,) = leases.kept_bytes(checkpoint, [lease])
    still = of_batch & files(checkpoint)
    sizes = [(checkpoint / "state/holdfast" / one).stat().st_size for one in still]
    assert 0 < kept_bytes <= sum(sizes)
    leases.drop(checkpoint, "before")
    totals.go_on(2)
    totals.go_on_until(lambda: not of_batch & files(checkpoint), "files of the batch are deleted")
    assert not [*(checkpoint / "state" / "holdfast" / "leases").iterdir()]


class Killed(BaseException):
    """The death of a command."""


def killing(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """Lets a command die in a call of a method of paths: a new file is cut then."""
    real, calls = getattr(MountedPath, name), iter(range(at + 1))

    def dying(path: MountedPath, *given: Any, **more: Any) -> Any:
        if next(calls, None) == at:
            if name == "create":
                real(path, given[0][: len(given[0]) // 2])
            raise Killed
        return real(path, *given, **more)

    monkeypatch.setattr(MountedPath, name, dying)


@pytest.mark.parametrize("name", ["create", "unlink", "sync"])
def test_a_command_that_was_killed_is_finished_by_the_same_command(
    name: str, totals: Running, tmp_path: Path
) -> None:
    checkpoint, expected = totals.local, rows(totals.local)
    died = 0
    for at in range(100):
        new = MountedPath(tmp_path / f"branch-{name}-{at}")
        steps: list[Callable[[], Any]] = [
            partial(leases.tag, checkpoint, f"{name}{at}", None),
            partial(holdfast.branch, checkpoint, new),
            partial(detach, new),
            partial(leases.drop, checkpoint, f"{name}{at}"),
        ]
        for step in steps:
            with pytest.MonkeyPatch.context() as patch:
                killing(patch, name, at)
                try:
                    step()
                    continue
                except Killed:
                    died += 1
            step()
        assert rows(new) == expected
        assert not leases.find_leases(checkpoint)
        if died == 0:
            break
        died = 0
    else:
        pytest.fail("some command dies each time")
    assert at > 1


def test_a_tag_that_was_begun_keeps_its_batch(totals: Running) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # The second file is the first copy of Spark's files.
        killing(patch, "create", 1)
        with pytest.raises(Killed):
            leases.tag(totals.local, "begun", None)
    totals.go_on(1)
    assert leases.tag(totals.local, "begun", None).batch == 2
    with pytest.raises(FileExistsError, match="'begun' keeps batch 2"):
        leases.tag(totals.local, "begun", None)
    assert leases.tag(totals.local, "begun", 2).batch == 2


def test_half_a_branch_is_refused_by_a_query(totals: Running, tmp_path: Path) -> None:
    new = MountedPath(tmp_path / "branch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "copy_commit", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            holdfast.branch(totals.local, new)
    totals.write(1)
    with pytest.raises(Exception, match="commits"):
        totals.run(new)
    assert holdfast.branch(totals.local, new) == 2
    assert totals.run(new) == totals.run()


def test_a_batch_that_is_cleaned_up_meanwhile_is_given_up(
    totals: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = totals.local
    copy = copies.copy_batch

    def late(*given: Any, **more: Any) -> None:
        copy(*given, **more)
        (checkpoint / "commits" / "2").rename(checkpoint / "gone")

    monkeypatch.setattr("holdfast.queries.leases.copy_batch", late)
    with pytest.raises(FileNotFoundError, match="batch 2 was cleaned up meanwhile"):
        leases.tag(checkpoint, "late", 2)
    with pytest.raises(FileNotFoundError, match="'late' is not complete"):
        holdfast.open_state(checkpoint, tag="late")
    leases.drop(checkpoint, "late")
    assert not [*(checkpoint / "state" / "holdfast" / "leases").iterdir()]


def test_damaged_leases_stop_the_clean_up(totals: Running) -> None:
    checkpoint = totals.local
    leases.tag(checkpoint, "whole", None)
    lease = checkpoint / "state" / "holdfast" / "leases" / "whole.lease"
    content, of_batch = lease.read_bytes(), files(checkpoint)
    for damaged in (b"", content[:-5], content.replace(b'"batch":2', b'"batch":1')):
        lease.write_bytes(damaged)
        totals.go_on(2)
        assert of_batch <= files(checkpoint)
        with pytest.raises(CorruptSegmentError, match="damaged: put it back"):
            holdfast.open_state(checkpoint, tag="whole")
    lease.write_bytes(content)
    assert rows(checkpoint, tag="whole")
    # One that is cut and does not hold is of a command that was killed, and keeps nothing.
    leases.drop(checkpoint, "whole")
    lease.write_bytes(content[:-5])
    totals.go_on(2)
    totals.go_on_until(lambda: not of_batch & files(checkpoint), "files of the batch are deleted")


def test_a_damaged_parent_is_named(totals: Running, tmp_path: Path) -> None:
    new = MountedPath(tmp_path / "branch")
    holdfast.branch(totals.local, new)
    parent = new / "state" / "holdfast" / "parent"
    parent.write_bytes(parent.read_bytes()[:-3])
    with pytest.raises(CorruptSegmentError, match=f"{parent}: .* damaged"):
        branches.read_parent(new)
    with pytest.raises(CorruptSegmentError, match=f"{parent}: .* damaged"):
        holdfast.open_state(new)


def test_a_reader_keeps_its_batch(totals: Running) -> None:
    checkpoint, of_batch = totals.local, files(totals.local)
    folder = checkpoint / "state" / "holdfast" / "leases"
    with holdfast.open_state(checkpoint) as state:
        before = state.to_arrow()
        totals.go_on(8)
        assert min(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")) > 2
        assert state.to_arrow().equals(before)
        assert state.get(before.select(state.key_names)).equals(before)
        rest = state.scan()
    # A scan that has begun goes on.
    totals.go_on(1)
    assert rest.read_all().equals(before)
    del rest
    assert not [*folder.iterdir()]
    # The reader died with this one.
    ended = leases.Lease(batch=0, stores=[], expires_ms=1)
    (folder / "reader-dead.lease").create(ended.to_bytes())
    totals.go_on(2)
    totals.go_on_until(lambda: not of_batch & files(checkpoint), "files of the batch are deleted")
    totals.go_on_until(lambda: not [*folder.iterdir()], "the lease is deleted")


def test_the_command_line(
    totals: Running, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    checkpoint, new = totals.local, tmp_path / "new"
    before = sorted(files_below(checkpoint))

    def run(*arguments: Any) -> dict[str, Any]:
        status, out, error = commands.run(capsys, *arguments, "--json")
        assert status == 0, error
        document: dict[str, Any] = json.loads("".join(out))
        return document

    assert not run("tag", checkpoint, "nightly")["made"]
    assert not run("branch", checkpoint, new)["made"]
    assert sorted(files_below(checkpoint)) == before
    assert not new.exists()
    assert run("tag", checkpoint, "nightly", "--at", 1, "--yes")["batch"] == 1
    assert run("branch", checkpoint, new, "--tag", "nightly", "--yes")["batch"] == 1
    listed = run("tags", checkpoint)["leases"]
    assert [one["branch"] for one in listed] == [str(new), None]
    assert rows(new) == rows(checkpoint, batch=1)
    status, _, error = commands.run(capsys, "diff", checkpoint, "nightly", new)
    assert (status, "0 added, 0 removed, 0 changed" in str(error)) == (0, True)
    status, out, _ = commands.run(capsys, "diff", checkpoint, "0", new, "--json")
    assert (status, len(out)) == (
        0,
        len([one for one in rows(new) if one not in rows(checkpoint, batch=0)]),
    )
    status, _, error = commands.run(capsys, "untag", checkpoint, listed[0]["name"], "--yes")
    assert (status, "is a branch that needs the segments" in str(error)) == (1, True)
    status, _, error = commands.run(capsys, "branch", new, tmp_path / "newer", "--yes")
    assert (status, f"run 'holdfast detach {new}' first" in str(error)) == (1, True)
    assert run("detach", new)["files"]
    assert run("detach", new, "--yes")["detached"]
    before_again = sorted(files_below(new))
    assert run("detach", new, "--yes")["files"] == 0
    assert sorted(files_below(new)) == before_again
    assert run("untag", checkpoint, "nightly", "--yes")["removed"]
    assert run("tags", checkpoint)["leases"] == []
    second = tmp_path / "second"
    assert run("branch", checkpoint, second, "--yes")["made"]
    shutil.rmtree(second)
    status, _, error = commands.run(capsys, "untag", checkpoint, second)
    assert (status, f"{second} is not there. If its disk is" in str(error)) == (0, True)
    assert run("untag", checkpoint, second, "--yes")["removed"]
    shutil.rmtree(checkpoint)
    assert commands.run(capsys, "verify", new)[0] == 0


def test_state_of_another_provider_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Running(spark, "aggregation-update", tmp_path)
    select_provider(spark, "rocksdb")
    try:
        query.go_on(1)
    finally:
        select_provider(spark, "holdfast")
    before = sorted(files_below(tmp_path))
    with pytest.raises(NotImplementedError, match="batch 0 has no state in Holdfast"):
        leases.tag(query.local, "old", None)
    with pytest.raises(NotImplementedError, match="batch 0 has no state in Holdfast"):
        holdfast.branch(query.local, tmp_path / "branch")
    assert sorted(files_below(tmp_path)) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tag", "{}", "a.b"), "is no name for a tag"),
        (("tag", "{}", "branch-1"), "is no name for a tag"),
        (("tag", "{}", "old", "--at", "77"), "expected batch 77 in the commit log, found 0 to 2"),
        (("untag", "{}", "none"), "expected a tag or a branch 'none', found none"),
        (("branch", "{}", "{}/x", "--tag", "none"), "expected a tag 'none', found none"),
        (("branch", "{}", "{}/state"), "expected no such folder, or an empty one"),
        (("state", "{}", "--tag", "none"), "expected a tag 'none', found none"),
    ],
)
def test_bad_input_changes_nothing(
    arguments: tuple[str, ...],
    said: str,
    totals: Running,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = totals.local
    before = sorted(files_below(checkpoint))
    more = () if arguments[0] == "state" else ("--yes",)
    given = [one.format(checkpoint) for one in arguments]
    status, _, error = commands.run(capsys, *given, *more)
    assert (status, said in str(error)) in ((1, True), (2, True)), error
    assert sorted(files_below(checkpoint)) == before
