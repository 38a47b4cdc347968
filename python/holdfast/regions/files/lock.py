"""Locks on files, for folders that one process at a time may use.

The kernel holds them (``flock``), so the lock of a dead process is gone. Over NFS the server takes
part, so other machines see them. A file system without such locks is used without: a warning asks
the user to start a pipeline only once. File systems that only the JVM reaches have leases instead,
see `files.lease`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final, Self

from holdfast.files.durable import explained
from holdfast.files.modes import create
from holdfast.files.mounted import MountedPath
from holdfast.files.paths import AnyPath
from holdfast.files.reached import HadoopPath
from holdfast.regions.base.errors import FolderInUseError
from holdfast.regions.files.lease import (
    FolderLease,
    described,
    remove_leases,
    require_free,
    take_lease,
)

#: See `take_by_file`.
Judge = Callable[[bytes | None], bytes | None]

LOG: Final = logging.getLogger(__name__)

_NO_LOCKS: Final = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}

#: More than any content of a locked file.
_HOLDER_BYTES: Final = 1 << 16


class FolderLock:
    """An open file that is locked if the file system has locks.

    Forked processes close it, or they would hold the lock as well.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._finalizer = weakref.finalize(self, _give_back, descriptor)
        _HELD.add(self)

    def is_at(self, path: Path) -> bool:
        """Return whether the file still has this name: another process may have replaced it."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), path.lstat())
        except FileNotFoundError:
            return False

    def read(self) -> bytes:
        """Return the content of the file."""
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def note_pipeline(self, pipeline: str) -> None:
        """Write into the file which pipeline has locked it, for the errors of others."""
        process = f"{os.getpid()} on {socket.gethostname()}"
        content = json.dumps({"pipeline": pipeline, "process": process})
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content.encode(), 0)

    def require_held(self) -> None:
        """Do nothing: no process takes a lock from a live one."""

    def close(self) -> None:
        """Release the lock; may be repeated."""
        self._finalizer()

    def leave(self) -> None:
        """Close the file in a child process, without taking the lock from its parent."""
        if self._finalizer.detach() is not None:
            os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


#: A folder that this process holds.
Hold = FolderLock | FolderLease

_HELD: Final[weakref.WeakSet[FolderLock]] = weakref.WeakSet()


def _give_back(descriptor: int) -> None:
    # Closing is not enough: a child that was just forked may still have the file open.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _let_go_in_child() -> None:
    for lock in list(_HELD):
        lock.leave()


os.register_at_fork(after_in_child=_let_go_in_child)


def lock_folder(path: AnyPath) -> Hold:
    """Lock a folder by the file `path` in it, which remains, or by the folder `path` of leases.

    Raises a FolderInUseError if another process, or another pipeline of this one, has it locked.
    """
    if isinstance(path, HadoopPath):
        return take_lease(path.parent, path)
    return _locked(path, os.O_CREAT)


def remove_lock(path: AnyPath) -> None:
    """Remove the lock file, or the leases, of a folder that is released."""
    if isinstance(path, HadoopPath):
        remove_leases(path)
    else:
        path.unlink(missing_ok=True)


def give_up(lock: Hold, path: AnyPath) -> None:
    """Release a lock, and remove its file or its leases."""
    if isinstance(path, HadoopPath):
        # Closing writes the lease again, so remove it after that.
        lock.close()
    remove_lock(path)
    lock.close()


def read_if_free(file: AnyPath, leases: str) -> bytes | None:
    """Return the content of a file that `take_by_file` could take; None if there is none."""
    if isinstance(file, HadoopPath):
        require_free(file.parent, file.parent / leases)
        return _content(file)
    lock = _locked_if_there(file)
    if lock is None:
        return None
    with lock:
        return lock.read()


def take_by_file(file: AnyPath, leases: str, judge: Judge, pipeline: str) -> Hold:
    """Take a folder for this process by a file in it that names the owner of the folder.

    A mounted file is locked; elsewhere `leases` names the folder of leases. Creates the folder if
    needed. Raises a FolderInUseError if another process, or another pipeline of this one, has it.

    `judge` takes the content of the file, None without a file. It returns the new content, or None
    to keep the content, and raises if the folder belongs to another pipeline. `pipeline` is for the
    errors of others.
    """
    folder = file.parent
    taking = f"cannot make {folder} the folder of this pipeline"
    if isinstance(file, HadoopPath):
        with explained(taking):
            lease = take_lease(file.parent, file.parent / leases)
        try:
            found = _content(file)
            content = judge(found)
            if content is not None and found is None:
                file.create(content)
            elif content is not None:
                file.write_bytes(content)
            lease.note_pipeline(pipeline)
        except BaseException:
            lease.close()
            raise
        return lease
    with explained(taking):
        folder.make_folder(exist_ok=True)
    while True:
        lock = _locked_if_there(file)
        content = judge(None if lock is None else lock.read())
        if lock is not None and content is None:
            return lock
        with lock or nullcontext():
            # Locked before it has its name, so no other pipeline gets in between.
            new = _written(file, content or b"", new=lock is None)
            if new is not None:
                return new


def _written(file: MountedPath, content: bytes, *, new: bool) -> FolderLock | None:
    """Write a file, locked and durable; None if one exists although `new` denies it."""
    staged = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    lock = FolderLock(create(staged, flags))
    try:
        if not try_lock(lock.descriptor):
            raise FolderInUseError(file.parent, "")
        os.pwrite(lock.descriptor, content, 0)
        os.fsync(lock.descriptor)
        if new:
            os.link(staged, file)
            staged.unlink()
        else:
            staged.replace(file)
        file.parent.sync()
    except FileExistsError:
        lock.close()
        staged.unlink()
        return None
    except BaseException:
        lock.close()
        staged.unlink(missing_ok=True)
        raise
    return lock


def _content(file: HadoopPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return file.read_bytes()
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


def _locked_if_there(path: Path) -> FolderLock | None:
    try:
        return _locked(path, 0)
    except FileNotFoundError:
        return None


def _locked(path: Path, flags: int) -> FolderLock:
    while True:
        lock = FolderLock(create(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags))
        if not try_lock(lock.descriptor):
            found = os.pread(lock.descriptor, _HOLDER_BYTES, 0)
            lock.close()
            raise FolderInUseError(path.parent, described(found))
        if lock.is_at(path):
            return lock
        lock.close()
