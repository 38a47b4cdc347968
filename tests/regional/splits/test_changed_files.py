"""Files that change between the moment they are found and the moment they are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.regions.splits import FileSplit, SplitReader
from support.regional.hooks import Hooks
from support.regional.split_files import (
    check_places,
    open_pipeline,
    output_of,
    pool_of,
    read_ids,
    write_ids,
)

#: A region that fails with a split makes the pipeline end soon.
SHORT: dict[str, Any] = {"max_region_staleness": (2, timedelta(hours=1))}
#: One split in a batch: after the first batch, part of a file was read.
SLOW: dict[str, Any] = {"regions": 2, "splits_per_region": 1}


def file_of(path: Path, number: int) -> Path:
    return path / "in" / f"{number:04}.parquet"


def half_copied(path: Path) -> Callable[[], None]:
    """Put the first half of a file there; returns what completes it."""
    content = file_of(path, 2).read_bytes()
    file_of(path, 2).write_bytes(content[: len(content) // 2])
    return lambda: file_of(path, 2).write_bytes(content) and None


def cut_in_place(path: Path) -> Callable[[], None]:
    content = file_of(path, 2).read_bytes()
    with file_of(path, 2).open("r+b") as file:
        file.truncate(len(content) - 1)
    return lambda: file_of(path, 2).write_bytes(content) and None


def no_parquet(path: Path) -> Callable[[], None]:
    readme = path / "in" / "README.txt"
    readme.write_text("Sensors of plant 3.")
    return readme.unlink


def no_parquet_hidden(path: Path) -> Callable[[], None]:
    readme = path / "in" / "README.txt"
    readme.write_text("Sensors of plant 3.")
    return lambda: readme.rename(path / "in" / "_README.txt") and None


def of_other_columns(path: Path) -> Callable[[], None]:
    """Put a file there whose column cannot be cast, then one of the same name that can."""
    content = file_of(path, 2).read_bytes()
    pq.write_table(
        pq.read_table(file_of(path, 2)).set_column(0, "id", [["word"] * 40]), file_of(path, 2)
    )
    return lambda: file_of(path, 2).write_bytes(content) and None


BAD = [half_copied, cut_in_place, no_parquet, no_parquet_hidden, of_other_columns]


@pytest.mark.parametrize("again", ["start", "checkpoint_id", "finish"])
@pytest.mark.parametrize("spoil", BAD)
def test_after_a_repair_the_next_start_goes_on(
    tmp_path: Path, spoil: Callable[[Path], Callable[[], None]], again: str
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    repair = spoil(tmp_path)
    with (
        open_pipeline(tmp_path, **SHORT) as query,
        pytest.raises(holdfast.RegionalQueryError, match="cannot be read"),
    ):
        query.run_available()
    failed = query.latest.id
    repair()
    options = {"checkpoint_id": failed} if again == "checkpoint_id" else {}
    with open_pipeline(tmp_path, **options, **SHORT) as query:
        if again == "finish":
            query.finish()
        query.run_available()
        query.finish()
        assert not query.latest.failed
    assert read_ids(tmp_path) == ids


def test_a_file_that_is_completed_while_the_pipeline_runs_is_read(
    tmp_path: Path, hooks: Hooks
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    repair = half_copied(tmp_path)
    with open_pipeline(tmp_path) as query:
        query.run_available(max_batches=2)
        assert query.latest.failed
        repair()
        query.run_available()
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_a_file_without_a_byte_is_not_there_yet(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "file"
    file.touch()
    with open_pipeline(tmp_path, {"kind": kind}) as query:
        assert query.run_available() == 0
        if kind in ("csv", "json"):
            file.write_text("id\n1\n" if kind == "csv" else '{"id": 1}\n')
            assert query.run_available() == 1
            assert read_ids(tmp_path) == [1]


def test_a_file_that_is_emptied_before_it_is_read_is_read_when_it_has_rows(tmp_path: Path) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path, {**SLOW, "splits_per_region": 2}) as query:
        query.run_available(max_batches=1)
        assert {split.path for split in pool_of(query.latest)} == {"0002.parquet"}
    content = file_of(tmp_path, 2).read_bytes()
    file_of(tmp_path, 2).write_bytes(b"")
    with open_pipeline(tmp_path) as query:
        query.run_available()
        assert read_ids(tmp_path) == ids[:40]
        file_of(tmp_path, 2).write_bytes(content)
        query.run_available()
        check_places(tmp_path, query.latest, ids)


@pytest.mark.parametrize("batches", [0, 1])
def test_a_file_that_was_touched_is_read_once(tmp_path: Path, batches: int) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path, SLOW) as query:
        query._enumerator.has_work()  # type: ignore[union-attr]
        query.run_available(max_batches=batches)
    file_of(tmp_path, 1).touch()
    with open_pipeline(tmp_path, SLOW) as query:
        query.run_available(max_batches=1)
        file_of(tmp_path, 1).touch()
        query.run_available()
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


def test_a_file_that_was_touched_after_it_was_read_is_not_read_again_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    with open_pipeline(tmp_path) as query:
        query.run_available()
        file_of(tmp_path, 1).touch()
        assert query.run_available() == 0
        ids += write_ids(tmp_path / "in", 2)
        query.run_available()
    with open_pipeline(tmp_path) as query:
        assert query.run_available() == 0
    assert caplog.text.count("changed in") == 1
    assert "'0001.parquet'" in caplog.text
    assert read_ids(tmp_path) == ids


def test_of_a_file_that_was_replaced_before_it_was_read_only_the_new_one_is_read(
    tmp_path: Path,
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    write_ids(tmp_path / "in", 2)
    with open_pipeline(tmp_path, {**SLOW, "splits_per_region": 2}) as query:
        query.run_available(max_batches=1)
    pq.write_table(pq.read_table(file_of(tmp_path, 2)).slice(5, 10), file_of(tmp_path, 2))
    with open_pipeline(tmp_path) as query:
        query.run_available()
        check_places(tmp_path, query.latest, [*ids, *range(2005, 2015)])


def replace_half_read(path: Path) -> bytes:
    """Publish two row groups of four, replace the file and let the pipeline fail with the rest."""
    write_ids(path / "in", 1)
    with open_pipeline(path, SLOW, **SHORT) as query:
        query.run_available(max_batches=1)
    content = file_of(path, 1).read_bytes()
    write_ids(path / "in", 1, rows=50)
    with (
        open_pipeline(path, SLOW, **SHORT) as query,
        pytest.raises(
            holdfast.RegionalQueryError,
            match=r"row groups . to . of '0001\.parquet'.*put the file back as it was, or remove",
        ),
    ):
        query.run_available()
    assert read_ids(path) == list(range(1000, 1020))
    return content


def test_a_file_that_was_replaced_after_part_of_it_was_read_goes_on_when_it_is_put_back(
    tmp_path: Path,
) -> None:
    content = replace_half_read(tmp_path)
    file_of(tmp_path, 1).write_bytes(content)  # it has another time than before
    with open_pipeline(tmp_path, SLOW, **SHORT) as query:
        query.run_available()
        check_places(tmp_path, query.latest, range(1000, 1040))


def test_a_file_that_was_replaced_after_part_of_it_was_read_can_be_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replace_half_read(tmp_path)
    file_of(tmp_path, 1).unlink()
    ids = write_ids(tmp_path / "in", 2)
    with open_pipeline(tmp_path, SLOW, **SHORT) as query:
        query.run_available()
    assert read_ids(tmp_path) == [*range(1000, 1020), *ids]
    assert "only part of them was read; the rest is skipped" in caplog.text
    assert "'0001.parquet'" in caplog.text


@pytest.mark.parametrize("batches", [1, 2])
def test_a_removed_file_is_named_and_read_if_it_comes_back(
    tmp_path: Path, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as that of a file system that was not mounted: before, or after part of it was read."""
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2)]
    with open_pipeline(tmp_path, {**SLOW, "regions": 3}) as query:
        query.run_available(max_batches=batches)
        read = read_ids(tmp_path)
    shutil.move(tmp_path / "in", tmp_path / "elsewhere")
    (tmp_path / "in").mkdir()
    with open_pipeline(tmp_path) as query:
        query.run_available()
    assert read_ids(tmp_path) == read
    assert "removed from" in caplog.text
    assert "'0002.parquet'" in caplog.text
    (tmp_path / "in").rmdir()
    shutil.move(tmp_path / "elsewhere", tmp_path / "in")
    with open_pipeline(tmp_path) as query:
        query.run_available()
        check_places(tmp_path, query.latest, ids)
    assert read_ids(tmp_path) == ids


@pytest.mark.parametrize("how", ["fail", "skip"])
@pytest.mark.parametrize("what", ["removed", "touched", "replaced"])
def test_a_file_may_change_between_its_listing_and_its_reading(
    tmp_path: Path, what: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in", 2, rows=10)]
    read = SplitReader.read
    left = iter([2])

    def change(self: SplitReader, split: FileSplit) -> Iterator[Any]:
        if split.path == "0002.parquet" and next(left, None):
            if what == "removed":
                file_of(tmp_path, 2).unlink()
            elif what == "touched":
                file_of(tmp_path, 2).touch()
            else:
                write_ids(tmp_path / "in", 2, rows=20)
        return read(self, split)

    monkeypatch.setattr(SplitReader, "read", change)
    with open_pipeline(tmp_path, {"on_bad_split": how}) as query:
        query.run_available()
        query.run_available()
        query.finish()
    expected = {"removed": ids[:40], "touched": ids, "replaced": [*ids[:40], *range(2000, 2020)]}
    assert read_ids(tmp_path) == expected[what]


def test_a_file_that_grows_while_it_is_read_gives_no_half_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a.csv"
    file.write_text("id\n1\n2\n3")
    read = SplitReader.read
    left = iter([1])

    def grow(self: SplitReader, split: FileSplit) -> Iterator[Any]:
        for rows in read(self, split):
            yield rows
            if next(left, None):
                with file.open("a") as more:
                    more.write("4\n5\n")

    monkeypatch.setattr(SplitReader, "read", grow)
    with open_pipeline(tmp_path, {"kind": "csv"}, tolerable_failed_checkpoints=1) as query:
        query.run_available()
    assert read_ids(tmp_path) == [1, 2, 5, 34]
    with open_pipeline(tmp_path, {"kind": "csv"}) as query:
        query.run_available()
    assert read_ids(tmp_path) == [1, 2, 5, 34]


def test_rows_of_a_changed_file_that_wait_in_a_region_are_kept(
    tmp_path: Path, hooks: Hooks
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    options = {"regions": 2, "splits_per_region": 4}
    with open_pipeline(tmp_path, options, hooks=hooks, aligned_timeout=timedelta()) as query:
        query.run_available(max_batches=1)
        waiting = sum(
            data.rows for entry in query.latest.regions.values() for data in entry.in_flight
        )
        assert waiting + len(output_of(tmp_path)) == len(ids)
        # The region that has them fails, while the file is replaced and then gone.
        hooks.fail_for("r0", range(10_000))
        write_ids(tmp_path / "in", 1, rows=7)
        write_ids(tmp_path / "in", 2)
        query.run_available(max_batches=1)
    hooks.calm()
    file_of(tmp_path, 1).unlink()
    with open_pipeline(tmp_path, options, hooks=hooks) as query:
        query.run_available()
        query.finish()
    assert read_ids(tmp_path) == [*ids, *range(2000, 2040)]
