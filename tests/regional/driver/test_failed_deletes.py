"""Storage that refuses to delete for a while: that is warned of, tried again, and loses nothing."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.base import sparing_log
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.runners import local
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, RunningCount, expected, output_of
from support.regional.restorable import batches, open_pipeline, run

Refuse = Callable[[Callable[[int], bool]], list[int]]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let the file system refuse to delete the metadata of checkpoints; returns what it refused."""
    delete = CheckpointFolders.drop

    def refusing(which: Callable[[int], bool]) -> list[int]:
        refused: list[int] = []

        def drop(folder: CheckpointFolders, *ids: int) -> None:
            for id in ids:
                if which(id):
                    refused.append(id)
                    raise PermissionError(errno.EPERM, "not for now", str(folder.metadata))
                delete(folder, id)

        monkeypatch.setattr(CheckpointFolders, "drop", drop)
        return refused

    return refusing


def damage(folder: Path) -> list[str]:
    """Return what cannot be read of the checkpoints that are there."""
    verification = Verification(folder)
    verdicts = [verification.verify(id, lambda done, of: None) for id in checkpoint_ids(folder)]
    return [damage.message for verdict in verdicts for damage in verdict.damage]


def files_of(folder: Path, id: int) -> set[Path]:
    """Return the files that hold the segments of a checkpoint."""
    metadata = CheckpointFolders(folder).read(id)
    return {
        folder / "segments" / ref.file for e in metadata.regions.values() for *_, ref in e.refs()
    }


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    found = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [one for one in found if text in one]


def test_a_checkpoint_that_cannot_be_deleted_stays_whole_until_it_can(
    tmp_path: Path, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:  # R76
    rows = batches(8)
    ckpt = tmp_path / "ckpt"
    # A file for every segment, so that what is released is deleted at once.
    with open_pipeline(tmp_path, num_retained=1, max_file_bytes=1) as query:
        run(query, rows[:2])
        refused = refuse(lambda id: id == 3)
        run(query, rows[:5], first=2)
        assert refused == [3, 3, 3]
        query.manager.wait_for_deletes()
        assert checkpoint_ids(ckpt) == [3, 6]
        assert damage(ckpt) == []
        (warning,) = warnings(caplog, "cannot be deleted yet")
        assert warning.startswith("checkpoint 3 cannot be deleted yet")
        assert "not for now" in warning
        held = files_of(ckpt, 3)
        assert held
        refuse(lambda id: False)
        run(query, rows[:6], first=5)
        assert checkpoint_ids(ckpt) == [7]
        assert damage(ckpt) == []
        # Its segments went with it.
        query.manager.wait_for_deletes()
        assert [file for file in held if file.exists()] == []
        run(query, rows, first=6)
    assert output_of(tmp_path / "out") == expected(rows)


def test_one_can_go_back_to_a_checkpoint_that_could_not_be_deleted(
    tmp_path: Path, refuse: Refuse
) -> None:  # R76
    rows = batches(5)
    with open_pipeline(tmp_path, num_retained=1, max_file_bytes=1) as query:
        run(query, rows[:2])
        refuse(lambda id: id == 3)
        run(query, rows, first=2)
        query.manager.wait_for_deletes()
    refuse(lambda id: False)
    with open_pipeline(tmp_path, num_retained=1, checkpoint_id=3) as query:
        assert query.latest.id == 3
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_the_next_start_tries_again_and_keeps_what_is_still_refused(
    tmp_path: Path, refuse: Refuse
) -> None:  # R76
    rows = batches(4)
    ckpt = tmp_path / "ckpt"
    with open_pipeline(tmp_path, num_retained=1, max_file_bytes=1) as query:
        run(query, rows[:2])
        refuse(lambda id: id == 3)
        run(query, rows[:3], first=2)
    with open_pipeline(tmp_path, num_retained=1, max_file_bytes=1) as query:
        assert checkpoint_ids(ckpt) == [3, 4]
        query.manager.wait_for_deletes()
        assert damage(ckpt) == []
    refuse(lambda id: False)
    with open_pipeline(tmp_path, num_retained=1, max_file_bytes=1) as query:
        assert checkpoint_ids(ckpt) == [4]
        run(query, rows, first=3)
    assert output_of(tmp_path / "out") == expected(rows)


def test_what_is_refused_for_good_keeps_nothing_else_from_being_deleted(
    tmp_path: Path, refuse: Refuse
) -> None:
    rows = batches(8)
    with open_pipeline(tmp_path, num_retained=1) as query:
        refused = refuse(lambda id: id <= 4)
        run(query, rows[:4])
        assert checkpoint_ids(tmp_path / "ckpt") == [1, 2, 3, 4, 5]
        refused.clear()
        run(query, rows, first=4)
        # No checkpoint asks for all of them.
        assert len(refused) == 4 * 3
        assert checkpoint_ids(tmp_path / "ckpt") == [1, 2, 3, 4, 9]


def test_metadata_that_a_restart_must_not_find_has_to_go(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:  # R18
    with open_pipeline(tmp_path) as query:
        run(query, batches(1))
        publish = CheckpointFolders.publish

        def fails_afterwards(folder: CheckpointFolders, metadata: CheckpointMetadata) -> None:
            publish(folder, metadata)
            raise OSError("it is not known whether it was written")

        monkeypatch.setattr(CheckpointFolders, "publish", fails_afterwards)
        refuse(lambda id: True)
        with pytest.raises(PermissionError):
            run(query, batches(2), first=1)
        with pytest.raises(hf.RegionalQueryError, match="the pipeline failed before"):
            run(query, batches(2), first=1)


def unlinkable(monkeypatch: pytest.MonkeyPatch, which: Callable[[str], bool]) -> list[str]:
    """Let the file system refuse to delete some files."""
    refused: list[str] = []
    unlink = os.unlink

    def refusing(path: Any, *args: Any, **more: Any) -> None:
        if which(str(path)):
            refused.append(str(path))
            raise PermissionError(errno.EPERM, "not for now", str(path))
        unlink(path, *args, **more)

    monkeypatch.setattr(os, "unlink", refusing)
    return refused


def staged_files(path: Path) -> list[Path]:
    return [file for file in (path / "out" / "_holdfast").rglob("*") if file.is_file()]


def test_staged_output_that_cannot_be_removed_is_swept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batches(4)
    with open_pipeline(tmp_path) as query:
        with monkeypatch.context() as patched:
            refused = unlinkable(patched, lambda path: "_holdfast" in path)
            run(query, rows[:3])
            assert refused
            assert len({path.parent for path in staged_files(tmp_path)}) == 3
            (warning,) = warnings(caplog, "cannot be removed yet")
            assert "not for now" in warning
        run(query, rows, first=3)
        assert staged_files(tmp_path) == []
    assert output_of(tmp_path / "out") == expected(rows)


def test_rows_that_a_function_has_had_are_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []

    def take(table: Any, checkpoint: int) -> None:
        taken.append((checkpoint, table.num_rows))

    rows = batches(3)
    query = (
        hf.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED, name="count")
        .foreach_batch(take)
        .open_local(tmp_path / "ckpt")
    )
    with query:
        with monkeypatch.context() as patched:
            unlinkable(patched, lambda path: path.endswith(".parquet"))
            run(query, rows[:2])
        assert list((tmp_path / "ckpt" / "output").glob("*.parquet"))
        run(query, rows, first=2)
        assert list((tmp_path / "ckpt" / "output").rglob("*.parquet")) == []
    assert taken == [(2, 20), (3, 20), (4, 20)]


def test_a_claimed_folder_that_cannot_be_deleted_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # R72
    rows = batches(3)
    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])
    origin = hf.restore(tmp_path / "ckpt", mode="claim")
    with monkeypatch.context() as patched:
        unlinkable(patched, lambda path: path.endswith(".hf") and "/ckpt/" in path)
        with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
            run(query, rows[:2], first=1)
    assert (tmp_path / "ckpt" / "metadata").exists()
    assert len(warnings(caplog, "is not deleted yet")) == 1
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, rows, first=2)
    assert not (tmp_path / "ckpt").exists()
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_rewind_that_cannot_delete_fails_and_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # R75
    rows = batches(4)
    with open_pipeline(tmp_path) as query:
        run(query, rows)
    with monkeypatch.context() as patched:
        unlinkable(patched, lambda path: "/out/" in path)
        with pytest.raises(PermissionError):
            open_pipeline(tmp_path, checkpoint_id=3)
    with open_pipeline(tmp_path) as query:
        assert query.latest.id == 3
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_segments_that_cannot_be_deleted_are_warned_of_at_the_start_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batches(2)
    with open_pipeline(tmp_path) as query:
        run(query, rows[:1])

    class Refusing:
        """A manager whose folder deletes nothing for now."""

        def __init__(self, *args: Any, **more: Any) -> None:
            self.own = manager(*args, **more)
            self.delete_failures = 0

        def sweep(self) -> int:
            raise PermissionError(errno.EPERM, "not for now")

        def stats(self) -> Refusing:
            self.delete_failures += 1
            return self

        def __getattr__(self, name: str) -> Any:
            return getattr(self.own, name)

    manager = local.SnapshotManager
    monkeypatch.setattr(local, "SnapshotManager", Refusing)
    monkeypatch.setattr("holdfast.regions.runners.local.tell_manager", lambda own, message: None)
    with open_pipeline(tmp_path) as query:
        run(query, rows, first=1)
    assert len(warnings(caplog, "files of earlier runs cannot be deleted yet")) == 1
    (warning,) = warnings(caplog, "a file of segments could not be deleted")
    assert warning.startswith("1 times")
    assert output_of(tmp_path / "out") == expected(rows)


@pytest.mark.parametrize("error", [hf.FencedError, hf.CorruptSegmentError])
def test_a_folder_that_is_lost_or_damaged_is_no_failed_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    class Lost:
        """A manager that finds something else wrong when it deletes."""

        def __init__(self, *args: Any, **more: Any) -> None:
            self.own = manager(*args, **more)

        def sweep(self) -> int:
            raise error("not a matter of time")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.own, name)

    manager = local.SnapshotManager
    monkeypatch.setattr(local, "SnapshotManager", Lost)
    with pytest.raises(error, match="not a matter of time"):
        open_pipeline(tmp_path)


def test_regions_that_fell_back_are_whole_in_a_checkpoint_that_cannot_be_deleted(
    tmp_path: Path, refuse: Refuse, hooks: Hooks
) -> None:  # R76
    rows = batches(6)
    ckpt = tmp_path / "ckpt"
    options: Any = {"num_retained": 1, "max_file_bytes": 1}
    with open_pipeline(tmp_path, hooks=hooks, **options) as query:
        run(query, rows[:2])
        hooks.fail_for("r01", range(2000, 3000))
        run(query, rows[:3], first=2)
        hooks.calm()
        refuse(lambda id: id == 4)
        run(query, rows, first=3)
        query.manager.wait_for_deletes()
        assert checkpoint_ids(ckpt) == [4, 7]
        assert damage(ckpt) == []
    assert output_of(tmp_path / "out") == expected(rows)


def test_warnings_of_one_kind_come_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    log = SparingLog(logging.getLogger("test"), seconds=lambda: seconds[0])
    for at in (0.0, 1.0, 59.0, 60.0, 61.0, 200.0):
        seconds[0] = at
        log.warn("one", f"at {at:g}")
    log.warn("other", "another kind")
    more = "more warnings of this kind since the last one"
    assert [one.getMessage() for one in caplog.records] == [
        "at 0",
        f"at 60 (2 {more})",
        f"at 200 (1 {more})",
        "another kind",
    ]
    assert sparing_log.PAUSE_S == 60
