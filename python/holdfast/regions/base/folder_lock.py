"""Locks on files, for folders that one process at a time may use.

The kernel holds them (``flock``), so that the lock of a process that died is gone with it. Over NFS
the server takes part, so that other machines see them. Where a file system has no such locks, a
warning says so, and the folder is used without: then it is up to the user to start a pipeline once.
On file systems that only the JVM reaches there are leases instead, see `base.folder_lease`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.regions.base.errors import FolderInUseError
from holdfast.regions.base.folder_lease import FolderLease, take_lease
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath

LOG: Final = logging.getLogger(__name__)

_NO_LOCKS: Final = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}

#: More than is written into a locked file.
_HOLDER_BYTES: Final = 1 << 16


class FolderLock:
    """An open file that is locked, or could be without effect; see the module.

    Parameters
    ----------
    descriptor : int
        The file. It is closed in processes that are forked from this one, or they would hold the
        lock as well.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._finalizer = weakref.finalize(self, _give_back, descriptor)
        _HELD.add(self)

    def is_at(self, path: Path) -> bool:
        """Whether the file still has this name: else another process replaced or removed it."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), path.lstat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Give the lock back; may be repeated."""
        self._finalizer()

    def leave(self) -> None:
        """Close the file in a child process, which does not take the lock from its parent."""
        if self._finalizer.detach() is not None:
            os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_HELD: Final[weakref.WeakSet[FolderLock]] = weakref.WeakSet()


def _give_back(descriptor: int) -> None:
    # Not by closing alone: a child that was just forked may have the file open still.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _let_go_in_child() -> None:
    for lock in list(_HELD):
        lock.leave()


os.register_at_fork(after_in_child=_let_go_in_child)


def lock_folder(folder: AnyPath, path: AnyPath) -> FolderLock | FolderLease:
    """Lock a folder by a file in it, which stays there when the lock is gone.

    Parameters
    ----------
    folder : Path or HadoopPath
        What is locked, for the error.
    path : Path or HadoopPath
        The file, or the folder of leases; created if it is not there.

    Raises
    ------
    FolderInUseError
        If another process, or another pipeline of this one, has it locked.
    OSError
        If the file cannot be opened.
    """
    if isinstance(folder, HadoopPath) or isinstance(path, HadoopPath):
        if not (isinstance(folder, HadoopPath) and isinstance(path, HadoopPath)):
            raise TypeError(f"{folder} and {path} are not on one file system")
        return take_lease(folder, path)
    return _locked(folder, path, lambda: _opened(path, os.O_CREAT))


def lock_if_there(folder: Path, path: Path) -> FolderLock | None:
    """Lock a folder by a file in it, as `lock_folder`; None if there is no such file."""
    try:
        return _locked(folder, path, lambda: _opened(path, 0))
    except FileNotFoundError:
        return None


def try_lock(descriptor: int) -> bool:
    """Lock an open file; False if it is locked already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno not in _NO_LOCKS:
            raise
        LOG.warning(
            "the file system has no locks (%s): make sure that a pipeline is started once", e
        )
    return True


def _locked(folder: Path, path: Path, opened: Callable[[], int]) -> FolderLock:
    while True:
        lock = FolderLock(opened())
        if not try_lock(lock.descriptor):
            found = os.pread(lock.descriptor, _HOLDER_BYTES, 0)
            lock.close()
            raise FolderInUseError(folder, _description(found))
        if lock.is_at(path):
            return lock
        lock.close()


def _opened(path: Path, flags: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o666)


def note_holder(lock: FolderLock | FolderLease, pipeline: str) -> None:
    """Write into a locked file who holds it, for the errors of others."""
    if isinstance(lock, FolderLease):
        lock.note_pipeline(pipeline)
        return
    process = f"{os.getpid()} on {socket.gethostname()}"
    os.ftruncate(lock.descriptor, 0)
    os.pwrite(lock.descriptor, json.dumps({"pipeline": pipeline, "process": process}).encode(), 0)


def _description(content: bytes) -> str:
    """Say who holds a lock, by the content of the file; empty if that says nothing."""
    try:
        found = json.loads(content)
        name = f"pipeline {str(found['pipeline'])!r} is open already"
    except (ValueError, KeyError, TypeError):
        return ""
    process = found.get("process")
    return name if process is None else f"{name}, in process {process}"
