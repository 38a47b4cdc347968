"""Paths do the same on mounted file systems and on those that only the JVM reaches."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.files.mounted import MountedPath
from holdfast.files.paths import AnyPath, listed, listed_with_status, recorded_folder
from holdfast.files.reached import HadoopPath
from holdfast.regions.files.folders import CheckpointFolders

pytestmark = pytest.mark.spark


@pytest.fixture(params=[MountedPath, HadoopPath])
def folder(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> AnyPath:
    """An empty folder; its files can be seen here either way."""
    return MountedPath(tmp_path) if request.param is MountedPath else HadoopPath(f"file:{tmp_path}")


def names(folder: AnyPath) -> list[str]:
    return [path.name for path in listed(folder)]


def test_names_lead_to_the_same_file(folder: AnyPath, tmp_path: Path) -> None:
    path = folder / "a" / "b.txt"
    assert (path.name, path.parent, path.with_name("c")) == (
        "b.txt",
        folder / "a",
        folder / "a" / "c",
    )
    assert str(path).endswith(f"{tmp_path}/a/b.txt")
    assert path.spark_name == f"file:{tmp_path}/a/b.txt"
    assert recorded_folder(str(path)) == path
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301
    assert sorted([folder / "b", folder / "a"]) == [folder / "a", folder / "b"]


def test_a_path_lies_in_itself_and_in_folders_above_it(folder: AnyPath) -> None:
    assert folder.lies_in(folder)
    assert (folder / "a" / "b").lies_in(folder / "a")
    assert not (folder / "ab").lies_in(folder / "a")
    assert not folder.lies_in(folder / "a")


def test_a_path_of_one_kind_lies_in_none_of_the_other(tmp_path: Path) -> None:
    assert not MountedPath(tmp_path).lies_in(HadoopPath(f"file:{tmp_path}"))
    assert not HadoopPath(f"file:{tmp_path}").lies_in(MountedPath(tmp_path))


def test_a_file_is_made_once_and_replaced_as_a_whole(folder: AnyPath) -> None:
    path = folder / "file"
    path.create(b"first")
    with pytest.raises(FileExistsError):
        path.create(b"second")
    assert path.read_bytes() == b"first"
    path.replace_text("third")
    path.replace_text("fourth", durable=False)
    assert path.read_text() == "fourth"
    assert names(folder) == ["file"], "nothing temporary is left"


def test_a_folder_says_what_is_in_it(folder: AnyPath) -> None:
    (folder / "some" / "inner").make_folder()
    (folder / "some" / "file").create(b"four")
    found = {path.name: status for path, status in listed_with_status(folder / "some")}
    assert list(found) == ["file", "inner"]
    assert (found["file"].is_file, found["file"].st_size) == (True, 4)
    assert (found["inner"].is_file, found["inner"].is_folder) == (False, True)
    assert (folder / "some" / "file").status() == found["file"]
    assert found["file"].modified_ms > 1_700_000_000_000


def test_what_is_not_there_has_no_status_and_an_empty_list(folder: AnyPath) -> None:
    with pytest.raises(FileNotFoundError):
        (folder / "none").status()
    assert (listed(folder / "none"), list(listed_with_status(folder / "none"))) == ([], [])
    assert not (folder / "none").exists()
    assert not (folder / "none").is_dir()


def test_a_folder_is_made_with_its_parents_and_taken_as_it_is_if_that_is_asked(
    folder: AnyPath,
) -> None:
    (folder / "a" / "b").make_folder()
    (folder / "a" / "b").make_folder(exist_ok=True)
    with pytest.raises(FileExistsError):
        (folder / "a" / "b").make_folder()
    assert (folder / "a" / "b").is_dir()


def test_files_are_deleted_as_far_as_they_are_there(folder: AnyPath) -> None:
    for name in ("a", "b", "c"):
        (folder / name).create(b"")
    folder.remove_files(["a", "b", "none"])
    (folder / "none").unlink(missing_ok=True)
    assert names(folder) == ["c"]
    (folder / "c").unlink()
    with pytest.raises(FileNotFoundError):
        (folder / "c").unlink()


def test_a_folder_goes_alone_if_it_is_empty_and_else_with_what_is_in_it(folder: AnyPath) -> None:
    (folder / "a" / "b").make_folder()
    with pytest.raises(OSError, match="a"):
        (folder / "a").rmdir()
    (folder / "a" / "b").rmdir()
    (folder / "a" / "c").create(b"")
    (folder / "a").remove_tree()
    (folder / "a").remove_tree()
    assert names(folder) == []


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_appears_with_all_that_is_in_it(folder: AnyPath, is_there: bool) -> None:
    assert folder.renames
    (folder / ".partial" / "inner").make_folder()
    (folder / ".partial" / "file").create(b"content")
    if is_there:
        (folder / "whole").make_folder()
    (folder / ".partial").appear_as("whole")
    assert names(folder) == ["whole"]
    assert names(folder / "whole") == ["file", "inner"]


def test_a_folder_does_not_appear_in_place_of_another(folder: AnyPath) -> None:
    (folder / ".partial").make_folder()
    (folder / "whole").make_folder()
    (folder / "whole" / "file").create(b"")
    with pytest.raises(OSError, match="whole"):
        (folder / ".partial").appear_as("whole")
    assert names(folder / "whole") == ["file"]


def test_a_checkpoint_folder_lists_and_drops_the_files_of_checkpoints(folder: AnyPath) -> None:
    folders = CheckpointFolders(folder)
    assert folders.ids() == []
    folders.metadata.make_folder()
    for id in (3, 1, 20):
        folders.metadata_file(id).create(b"")
    (folders.metadata / "other").create(b"")
    assert folders.ids() == [1, 3, 20]
    folders.drop(1, 20, 7)
    assert folders.ids() == [3]


def test_the_number_of_the_newest_attempt_is_kept(folder: AnyPath) -> None:
    folders = CheckpointFolders(folder)
    assert folders.read_last_attempt() == 0
    folders.note_attempt(7)
    assert folders.read_last_attempt() == 7
