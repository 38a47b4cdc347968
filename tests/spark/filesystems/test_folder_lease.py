"""Leases on folders without locks: one holder at a time, and a dead one is followed by another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast._core import CheckpointMetadata
from holdfast.files.reached import HadoopPath
from holdfast.regions.base.errors import FolderLostError
from holdfast.regions.files import lease as folder_lease
from holdfast.regions.files.folders import RESERVED_ATTEMPTS, CheckpointFolders
from holdfast.regions.files.lease import FolderLease, require_free, take_lease

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> HadoopPath:
    """A folder that is reached through Hadoop; its files can be seen here, too."""
    return HadoopPath(f"file:{tmp_path}")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lease, "RENEWAL_S", 0.1)
    monkeypatch.setattr(folder_lease, "WATCH_S", 0.05)
    monkeypatch.setattr(folder_lease, "EXPIRY_S", 2.0)


def take(folder: HadoopPath) -> FolderLease:
    return take_lease(folder, folder / "lock")


def leases(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "lock").glob("[0-9a-f]*") if path.is_file())


def left_by(folder: HadoopPath, tmp_path: Path, **holder: object) -> None:
    """Change who a lease says that its holder is, as if it were from there."""
    (path,) = leases(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | holder))


def stop_renewals(lease: FolderLease) -> None:
    """Let a holder stand still."""
    lease._ended.set()
    lease._thread.join()
    lease._ended = threading.Event()


def followed(folder: HadoopPath, lease: FolderLease, tmp_path: Path) -> FolderLease:
    """Let a holder stand still until another process has taken its folder; returns that one."""
    stop_renewals(lease)
    left_by(folder, tmp_path, host="elsewhere", released=False)
    return take(folder)


def test_a_folder_that_was_given_back_has_the_next_number(
    folder: HadoopPath, tmp_path: Path
) -> None:
    for number in range(3):
        with take(folder) as lease:
            lease.require_held()
        (path,) = leases(tmp_path)
        assert int(path.name, 16) == number


@pytest.mark.usefixtures("quick")
def test_a_folder_whose_lease_is_renewed_is_refused(folder: HadoopPath) -> None:
    with take(folder) as lease:
        lease.note_pipeline("first")
        expected = f"pipeline 'first' is open already, in process {os.getpid()} on"
        with pytest.raises(holdfast.FolderInUseError, match=expected):
            take(folder)
        with pytest.raises(holdfast.FolderInUseError, match=expected):
            require_free(folder, folder / "lock")
        lease.require_held()
    require_free(folder, folder / "lock")


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(
    folder: HadoopPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with take(folder):
        pass
    left_by(folder, tmp_path, process=ended.pid, released=False)
    # Would fail after the first look at a lease that is not over.
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    with take(folder) as lease:
        lease.require_held()


@pytest.mark.usefixtures("quick")
def test_a_holder_elsewhere_that_is_silent_for_long_enough_is_followed(
    folder: HadoopPath, tmp_path: Path
) -> None:
    with take(folder):
        pass
    left_by(folder, tmp_path, host="elsewhere", released=False)
    began = time.monotonic()
    with take(folder) as lease:
        assert time.monotonic() - began >= folder_lease.EXPIRY_S
        lease.require_held()


@pytest.mark.usefixtures("quick")
def test_a_holder_that_was_followed_publishes_nothing(folder: HadoopPath, tmp_path: Path) -> None:
    lease = take(folder)
    folders = CheckpointFolders(folder, lease)
    folders.note_attempt(1)
    successor = followed(folder, lease, tmp_path)
    metadata = CheckpointMetadata(1, 0, "checkpoint", 0, b"", [])
    with pytest.raises(FolderLostError, match="taken over by another process"):
        folders.note_attempt(1 + RESERVED_ATTEMPTS)
    with pytest.raises(FolderLostError):
        folders.publish(metadata)
    with pytest.raises(FolderLostError):
        lease.require_held()
    assert folders.read_last_attempt() == RESERVED_ATTEMPTS
    assert not (tmp_path / "metadata").exists()
    lease.close()
    # It has given back nothing that is not its own.
    successor.require_held()
    CheckpointFolders(folder, successor).publish(metadata)
    successor.close()


@pytest.mark.usefixtures("quick")
def test_a_write_that_is_under_way_is_not_ended_after_another_process_followed(
    folder: HadoopPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take(folder)
    write_through = HadoopPath.write_through
    successors: list[FolderLease] = []

    def stand_still(self: HadoopPath, *arguments: Any, **options: Any) -> None:
        # The latest moment at which the holder could have looked whether it still is one.
        if not successors:
            successors.append(followed(folder, lease, tmp_path))
        write_through(self, *arguments, **options)

    monkeypatch.setattr(HadoopPath, "write_through", stand_still)
    with pytest.raises(FolderLostError):
        lease.write(folder / "late", b"late")
    assert not (tmp_path / "late").exists()
    successors[0].write(folder / "next", b"next")
    assert (tmp_path / "next").read_bytes() == b"next"
    successors[0].close()


@pytest.mark.usefixtures("quick")
def test_one_that_stood_still_while_it_took_a_folder_does_not_have_it(
    folder: HadoopPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take(folder):
        pass
    create = HadoopPath.create
    quicker: list[FolderLease] = []
    began: list[bool] = []

    def stand_still(self: HadoopPath, content: bytes) -> None:
        if not began:
            # Two others take it and give it back meanwhile, and a third one keeps it.
            began.append(True)
            for _ in range(2):
                with take(folder):
                    pass
            quicker.append(take(folder))
        create(self, content)

    monkeypatch.setattr(HadoopPath, "create", stand_still)
    with pytest.raises(holdfast.FolderInUseError):
        take(folder)
    quicker[-1].write(folder / "mine", b"mine")
    quicker[-1].close()
    # Nothing is left of the attempt, through which something could be written.
    names = sorted(path.name for path in (tmp_path / "lock").iterdir())
    assert [name for name in names if name.endswith(".through")] == names[1:]


@pytest.mark.usefixtures("quick")
def test_what_a_holder_writes_tells_others_that_it_lives(
    folder: HadoopPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = take(folder)
    stop_renewals(lease)
    left_by(folder, tmp_path, host="elsewhere")
    sleep, writes = time.sleep, iter(range(100))

    def write(seconds: float) -> None:
        sleep(seconds)
        lease.write(folder / str(next(writes)), b"")

    monkeypatch.setattr(time, "sleep", write)
    with pytest.raises(holdfast.FolderInUseError):
        take(folder)


def test_of_several_that_want_a_folder_one_has_it(folder: HadoopPath) -> None:
    with take(folder):
        pass
    taken: list[FolderLease] = []
    refused: list[BaseException] = []
    start = threading.Barrier(4)

    def want() -> None:
        start.wait()
        try:
            taken.append(take(folder))
        except holdfast.FolderInUseError as e:
            refused.append(e)

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 3)
    taken[0].require_held()
    taken[0].close()
