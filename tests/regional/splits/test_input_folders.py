"""Folders as they are in the field: links, names of any bytes, what cannot be listed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from support.regional.split_files import IDS, PLACED, Placed, open_pipeline, read_ids, write_ids


def list_in(path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Call a function with the name of every folder, right before that is listed."""
    scandir = os.scandir

    def acting(folder: Any) -> Any:
        act(Path(os.fsdecode(folder)).name)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", acting)


def run(path: Path, **options: Any) -> list[int]:
    """Read what is there, twice, and once more after a restart; returns all ids so far."""
    for times in (2, 1):
        with open_pipeline(path, options) as query:
            for _ in range(times):
                query.run_available()
    return read_ids(path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_subfolder_that_cannot_be_listed_is_named_and_listed_when_it_can(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    write_ids(tmp_path / "in" / "lost+found", 2)

    def refuse(name: str) -> None:
        if name == "lost+found":
            raise OSError(code, os.strerror(code), name)

    with monkeypatch.context() as patch:
        list_in(tmp_path, patch, refuse)
        with open_pipeline(tmp_path) as query:
            query.run_available()
            query.run_available()
        assert caplog.text.count("'lost+found' in") == 1
        assert os.strerror(code) in caplog.text
        assert read_ids(tmp_path) == ids
    assert run(tmp_path) == [*ids, *range(2000, 2040)]


def test_files_that_wait_are_not_dropped_where_their_folder_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [*write_ids(tmp_path / "in" / "a", 1), *write_ids(tmp_path / "in" / "b", 2)]
    with open_pipeline(tmp_path) as query:
        query.run_available(max_batches=1)

    def refuse(name: str) -> None:
        if name in "ab":
            raise PermissionError(errno.EACCES, "Permission denied", name)

    list_in(tmp_path, monkeypatch, refuse)
    assert run(tmp_path) == ids


def test_a_source_folder_that_cannot_be_listed_ends_the_pipeline_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ids(tmp_path / "in", 1)

    def refuse(name: str) -> None:
        if name == "in":
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "in"))

    with open_pipeline(tmp_path) as query:
        list_in(tmp_path, monkeypatch, refuse)
        with pytest.raises(PermissionError, match=r"Permission denied.*/in"):
            query.run_available()


def test_a_folder_may_vanish_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    write_ids(tmp_path / "in" / "temporary", 2)

    def vanish(name: str) -> None:
        if name == "temporary":
            (tmp_path / "in" / "temporary").rename(tmp_path / "gone")

    list_in(tmp_path, monkeypatch, vanish)
    assert run(tmp_path) == ids


@pytest.mark.parametrize(
    "target", ["loop", "elsewhere", ".", "..", "sub", "../in", "sub/../sub", "/", "nowhere"]
)
def test_a_link_that_leads_into_a_circle_or_nowhere_is_left_out(
    tmp_path: Path, target: str
) -> None:
    ids = [*write_ids(tmp_path / "in", 1), *write_ids(tmp_path / "in" / "sub", 2)]
    (tmp_path / "in" / "elsewhere").symlink_to("loop")
    (tmp_path / "in" / "loop").symlink_to(target)
    (tmp_path / "in" / "sub" / "up").symlink_to("..")
    assert run(tmp_path) == ids


def test_folders_that_link_to_each_other_are_listed_once(tmp_path: Path) -> None:
    ids = []
    for number in range(12):
        ids += write_ids(tmp_path / "in" / f"f{number}", number)
        for other in range(12):
            (tmp_path / "in" / f"f{number}" / f"to{other}").symlink_to(f"../f{other}")
    assert run(tmp_path) == ids


@pytest.mark.parametrize("link", ["a", "latest"])
def test_a_folder_with_two_names_is_read_once(tmp_path: Path, link: str) -> None:
    ids = []
    for day in (26, 27):
        ids += write_ids(tmp_path / "in" / f"b2026-11-{day}", day)
        (tmp_path / "in" / link).unlink(missing_ok=True)
        (tmp_path / "in" / link).symlink_to(f"b2026-11-{day}")
        assert run(tmp_path) == ids


def test_of_two_links_to_a_folder_elsewhere_the_older_one_counts(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ids = list(write_ids(tmp_path / "elsewhere", 1))
    (tmp_path / "in" / "site").symlink_to(tmp_path / "elsewhere")
    assert run(tmp_path) == ids
    (tmp_path / "in" / "a").symlink_to(tmp_path / "elsewhere")
    ids += write_ids(tmp_path / "elsewhere", 2)
    assert run(tmp_path) == ids
    assert len(ids) == 80


@pytest.mark.parametrize("kind", ["hard", "soft", "soft to elsewhere"])
@pytest.mark.parametrize("name", ["0000.parquet", "sub/a.parquet", "z.parquet"])
def test_a_file_with_two_names_is_read_once(tmp_path: Path, kind: str, name: str) -> None:
    """Whether the second name is there from the beginning or comes later."""
    ids = list(write_ids(tmp_path / "in", 1))
    (tmp_path / "in" / "sub").mkdir()
    file = tmp_path / "in" / "0001.parquet"
    if kind == "soft to elsewhere":
        file = file.rename(tmp_path / "file")
        (tmp_path / "in" / "0001.parquet").symlink_to(file)
    assert run(tmp_path) == ids
    second = tmp_path / "in" / name
    second.hardlink_to(file) if kind == "hard" else second.symlink_to(file)
    assert run(tmp_path) == ids
    ids += write_ids(tmp_path / "in", 2)
    third = tmp_path / "in" / "third"
    third.hardlink_to(tmp_path / "in" / "0002.parquet")
    assert run(tmp_path) == ids


def test_a_link_to_what_is_hidden_is_read(tmp_path: Path) -> None:
    """As mounted volumes of Kubernetes are laid out."""
    ids = list(write_ids(tmp_path / "in" / "..2026_11_26", 1))
    (tmp_path / "in" / "..data").symlink_to("..2026_11_26")
    (tmp_path / "in" / "0001.parquet").symlink_to("..data/0001.parquet")
    assert run(tmp_path) == ids


@pytest.mark.parametrize("name", [b"\xff\xfe.parquet", b"line\nbreak", b"a b%20=\xe9", b"\x1b[2J"])
def test_files_and_folders_have_names_of_any_bytes(tmp_path: Path, name: bytes) -> None:
    ids = list(write_ids(tmp_path / "in" / "text", 1))
    inside = (tmp_path / "in" / "text").rename(tmp_path / "in" / os.fsdecode(name))
    (inside / "0001.parquet").rename(inside / os.fsdecode(name))
    # Also where a divided file is read from the middle, and where it is not.
    assert run(tmp_path) == ids
    ids += write_ids(tmp_path / "new", 2)
    (tmp_path / "new" / "0002.parquet").rename(inside / "2")
    assert run(tmp_path, split_bytes=1_000_000) == ids


def test_a_source_folder_has_a_name_of_any_bytes(tmp_path: Path) -> None:
    ids = list(write_ids(tmp_path / "text" / "in", 1))
    path = (tmp_path / "text").rename(tmp_path / os.fsdecode(b"\xff"))
    (path / "in" / "bad").write_text("no Parquet")
    pipeline = holdfast.regional(
        holdfast.FileSplits(path / "in", IDS, regions=2, on_bad_split="skip")
    )
    with (
        pipeline.apply(Placed(), schema=PLACED, name="placed")
        .write_parquet(tmp_path / "out")
        .open_local(tmp_path / "ckpt") as query
    ):
        query.run_available()
    assert read_ids(tmp_path) == ids


def test_a_bad_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    write_ids(tmp_path / "in", 1)
    (tmp_path / "in" / "odd\udcff").write_text("no Parquet")
    with (
        open_pipeline(tmp_path, max_region_staleness=(2, timedelta(days=1))) as q,
        pytest.raises(holdfast.RegionalQueryError, match=r"odd\\udcff.*cannot be read"),
    ):
        q.run_available()


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    ids = list(write_ids(tmp_path / "in", 1))
    os.mkfifo(tmp_path / "in" / "pipe")
    (tmp_path / "in" / "device").symlink_to("/dev/zero")
    (tmp_path / "in" / "half._COPYING_").write_text("half a file")
    assert run(tmp_path) == ids
