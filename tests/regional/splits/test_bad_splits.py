"""Splits that cannot be read: ``FileSplits(on_bad_split="skip")``."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.regions.splits.assignment import Assignment, Skipped, skipped_splits
from holdfast.regions.splits.file_split import FileSplit
from support.regional.hooks import Hooks
from support.regional.split_files import (
    PLACED,
    Placed,
    open_pipeline,
    read_ids,
    splits_of,
    write_ids,
)

SKIP: dict[str, Any] = {"on_bad_split": "skip", "max_file_age": timedelta(days=10_000)}


def write_bad(path: Path, number: int) -> Path:
    """Write a file that is no Parquet file."""
    file = path / "in" / f"{number:04}.parquet"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"Sensors of plant {number}.")
    return file


def skipped_paths(query: holdfast.LocalQuery) -> list[str]:
    return sorted(one.split.path for one in skipped_splits(query.latest))


def damage(file: Path, group: int) -> bytes:
    """Overwrite the pages of a row group; returns what the file was."""
    content = file.read_bytes()
    column = pq.read_metadata(file).row_group(group).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    with file.open("r+b") as writable:
        writable.seek(first)
        writable.write(b"\xff" * column.total_compressed_size)
    return content


@pytest.mark.parametrize("regions", [1, 3])
def test_a_checkpoint_completes_without_what_cannot_be_read(tmp_path: Path, regions: int) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 50)]
    for number in range(2, 40):
        write_bad(tmp_path, number)
    with open_pipeline(tmp_path, {**SKIP, "regions": regions}) as query:
        query.run_available()
        assert {record.outcome for record in query.history()} == {"global"}
        assert skipped_paths(query) == [f"{number:04}.parquet" for number in range(2, 40)]
        assert query.metrics().skipped_splits == 38
        assert query.metrics().failures == 0
        assert query.run_available() == 0
    with open_pipeline(tmp_path, {**SKIP, "regions": regions}) as query:
        assert query.run_available() == 0, "they are skipped until their files change"
        assert query.metrics().skipped_splits == 38
    assert read_ids(tmp_path) == ids


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("parquet", b"PAR1" + b"\0" * 100 + b"PAR1"),
        ("csv", b"id\nword\n"),
        ("csv", b"id\n1,2,3\n"),
        ("json", b'{"id": 1}\n{"id": '),
        ("json", b'{"id": [1]}\n'),
        ("arrow", b"ARROW1 and nothing else"),
    ],
)
def test_no_row_of_a_split_comes_out_if_some_cannot_be_read(
    tmp_path: Path, kind: str, content: bytes
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad").write_bytes(content)
    with open_pipeline(tmp_path, {**SKIP, "kind": kind}) as query:
        query.run_available()
        assert skipped_paths(query) == ["bad"]
    assert read_ids(tmp_path) == []


@pytest.mark.parametrize("repair", ["put back", "touched", "start with fail"])
def test_one_row_group_that_is_damaged_is_skipped_alone_and_tried_again(
    tmp_path: Path, repair: str
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    file = tmp_path / "in" / "0001.parquet"
    content = damage(file, 1)
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        (one,) = skipped_splits(query.latest)
        assert one.split.groups == (1, 2)
    assert read_ids(tmp_path) == [*ids[:10], *ids[20:]]
    status = file.stat()
    file.write_bytes(content)
    if repair == "start with fail":
        # As if the program had been at fault: the file is as it was.
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif repair == "touched":
        file.touch()
    options = {} if repair == "start with fail" else SKIP
    with open_pipeline(tmp_path, options) as query:
        query.run_available()
        assert not skipped_splits(query.latest)
        assert query.metrics().skipped_splits == 0
    assert read_ids(tmp_path) == ids


def test_a_skipped_file_that_is_still_bad_is_skipped_again_and_dropped_when_it_is_removed(
    tmp_path: Path,
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    bad = write_bad(tmp_path, 2)
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        bad.touch()
        assert query.run_available() == 1
        assert skipped_paths(query) == ["0002.parquet"]
        bad.rename(bad.with_name("_0002.parquet"))
        ids += write_ids(tmp_path / "in", 3)
        query.run_available()
        assert skipped_paths(query) == []
    assert read_ids(tmp_path) == ids


def test_a_start_with_fail_tries_what_was_skipped_and_ends_with_its_name(tmp_path: Path) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    write_bad(tmp_path, 2)
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
    with (
        open_pipeline(tmp_path) as query,
        pytest.raises(holdfast.RegionalQueryError, match=r"'0002\.parquet'.*cannot be read"),
    ):
        query.run_available()
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        assert skipped_paths(query) == ["0002.parquet"]
    assert read_ids(tmp_path) == ids


def test_a_file_that_was_changed_when_part_of_it_was_read_is_skipped_until_it_is_put_back(
    tmp_path: Path,
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    file = tmp_path / "in" / "0001.parquet"
    with open_pipeline(tmp_path, {**SKIP, "splits_per_region": 1}) as query:
        query.run_available(max_batches=1)
        content = file.read_bytes()
        write_ids(tmp_path / "in", 1, rows=50)
        query.run_available()
        assert skipped_paths(query) == ["0001.parquet"]
        file.write_bytes(content)
        query.run_available()
    assert read_ids(tmp_path) == ids


def test_skipped_splits_survive_an_attempt_that_is_aborted(tmp_path: Path, hooks: Hooks) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    bad = write_bad(tmp_path, 2)
    failures = iter(range(3))

    def trouble(region: str, seen: Sequence[int]) -> None:
        if next(failures, None) is not None:
            raise RuntimeError("all are in trouble")

    hooks.on_rows = trouble
    with open_pipeline(tmp_path, SKIP, hooks=hooks, tolerable_failed_checkpoints=5) as query:
        query.run_available()
        assert "aborted" in [record.outcome for record in query.history()]
        assert skipped_paths(query) == [bad.name]
    assert read_ids(tmp_path) == ids


def test_what_a_region_that_fails_could_not_read_is_not_lost(tmp_path: Path, hooks: Hooks) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    bad = write_bad(tmp_path, 2)
    with open_pipeline(
        tmp_path, {**SKIP, "splits_per_region": 2}, hooks=hooks, max_failure_ratio=0.5
    ) as query:
        write_ids(tmp_path / "in", 0, rows=10)
        query.run_available()
        bad.touch()
        ids += write_ids(tmp_path / "in", 3)
        for region in ("r0", "r1", "r2"):
            hooks.fail_for(region, range(3000, 4000))
            query.run_available(max_batches=1)
        hooks.calm()
        query.run_available()
        query.finish()
        assert skipped_paths(query) == [bad.name]
    assert read_ids(tmp_path) == [*range(10), *ids]


@pytest.mark.parametrize("how", ["checkpoint_id", "savepoint"])
def test_skipped_splits_are_part_of_checkpoints_and_savepoints(tmp_path: Path, how: str) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    bad = write_bad(tmp_path, 2)
    options: dict[str, Any] = {}
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        before = query.latest.id
        write_ids(tmp_path / "in", 2)  # the bad file is repaired
        query.run_available()
        assert read_ids(tmp_path) == [*ids, *range(2000, 2040)]
        assert skipped_paths(query) == []
        if how == "savepoint":
            write_bad(tmp_path, 3)
            query.run_available()
            query.stop_with_savepoint(tmp_path / "save")
        else:
            options["checkpoint_id"] = before
    if how == "savepoint":
        pipeline = (
            holdfast.regional(splits_of(tmp_path, **SKIP))
            .apply(Placed(), schema=PLACED, name="placed")
            .write_parquet(tmp_path / "out")
        )
        query = pipeline.open_local(tmp_path / "new", restore=holdfast.restore(tmp_path / "save"))
        assert skipped_paths(query) == ["0003.parquet"]
    else:
        query = open_pipeline(tmp_path, SKIP, **options)
        assert skipped_paths(query) == [bad.name]
    with query:
        query.run_available()
    assert read_ids(tmp_path) == [*ids, *range(2000, 2040)]


def test_a_file_that_storage_cannot_read_now_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    opened = pa.OSFile
    left = iter([1])

    def refuse(path: Any, *arguments: Any, **named: Any) -> Any:
        if b"0002.parquet" in path and next(left, None):
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *arguments, **named)

    with open_pipeline(tmp_path, {**SKIP, "split_bytes": 10_000}) as query:
        monkeypatch.setattr(pa, "OSFile", refuse)
        query.run_available()
        query.finish()
        assert "regional" in [record.outcome for record in query.history()]
        assert skipped_paths(query) == []
    assert read_ids(tmp_path) == ids


def test_a_file_that_may_not_be_read_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    write_ids(tmp_path / "in", 2)
    opened = pa.OSFile

    def refuse(path: Any, *arguments: Any, **named: Any) -> Any:
        if b"0002.parquet" in path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *arguments, **named)

    monkeypatch.setattr(pa, "OSFile", refuse)
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        assert skipped_paths(query) == ["0002.parquet"]
    assert read_ids(tmp_path) == ids


def test_show_lists_what_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ids(tmp_path / "in", 1)
    damage(tmp_path / "in" / "0001.parquet", 2)
    (tmp_path / "in" / "odd\udcff\x1b[2J").write_text("no Parquet")
    with open_pipeline(tmp_path, SKIP) as query:
        query.run_available()
        id = str(query.latest.id)
    folder = str(tmp_path / "ckpt")
    for arguments in ([folder], [folder, "--id", id]):
        main(["show", *arguments])
        shown = capsys.readouterr().out
        assert "row groups 2 to 2 of '0001.parquet'" in shown
        assert "magic bytes" in shown
        assert "\x1b" not in shown
        main(["show", *arguments, "--json"])
        document = json.loads(capsys.readouterr().out)
        found = document.get("checkpoints", [document])[-1]["skipped_splits"]
        assert {one["path"] for one in found} == {"0001.parquet", "odd\udcff\x1b[2J"}
        assert {tuple(one["row_groups"] or ()) for one in found} == {(2, 3), ()}
        assert all(one["reason"] and one["bytes"] for one in found)
    main(["show", folder, "--details"])
    assert "0001.parquet" in capsys.readouterr().out


def test_skipped_splits_are_in_the_snapshot() -> None:
    split = FileSplit(path="a", file_bytes=90, modified_ns=7, groups=(1, 2), size=40, parts=3)
    assignment = Assignment(skipped=[Skipped(split, "no", (90, 7)), Skipped(split, "gone", None)])
    again = Assignment.decode(assignment.encode())
    assert [(one.reason, one.found) for one in again.skipped] == [("no", (90, 7)), ("gone", None)]


def test_another_word_for_what_happens_to_a_bad_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="on_bad_split='ignore' is not allowed: expected one of"):
        splits_of(tmp_path, on_bad_split="ignore")
