"""An output folder on a file system that is mounted: its owner file is locked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.regions.base.durable import explained, sync_folder
from holdfast.regions.base.errors import FolderInUseError
from holdfast.regions.base.folder_lock import FolderLock, lock_if_there, try_lock
from holdfast.regions.sinks.owner import OWNER_FILE, Candidate, OutputFolder, Owner


class LocalOutputFolder(OutputFolder):
    """Owned by a lock; see `OutputFolder`."""

    root: Path
    file: Path

    def __init__(self, root: Path, published_after: Callable[[int], Sequence[str]]) -> None:
        super().__init__(root, published_after)

    def require_free_for(self, candidate: Candidate) -> None:
        """See `OutputFolder`."""
        lock = lock_if_there(self.root, self.file)
        if lock is None:
            self.require_known(candidate)
        else:
            with lock:
                self.require_own(self._read(lock), candidate)

    def take(self, candidate: Candidate) -> FolderLock:
        """See `OutputFolder`."""
        with explained(f"cannot make {self.root} the folder of this pipeline"):
            self.root.mkdir(parents=True, exist_ok=True)
        while True:
            lock = lock_if_there(self.root, self.file)
            if lock is None:
                self.require_known(candidate)
                if (lock := self._write(candidate.owner, new=True)) is not None:
                    return lock
                continue
            found = self._read(lock)
            self.require_own(found, candidate)
            if found == candidate.owner:
                return lock
            with lock:
                # Locked before it is there: between the two no other pipeline gets in.
                if (lock_of_new := self._write(candidate.owner, new=False)) is not None:
                    return lock_of_new

    def require_still(self, owner: Owner) -> None:
        """See `OutputFolder`."""
        with suppress(FileNotFoundError):
            found = Owner.decode(self.file.read_bytes(), self.file)
            if found.id != owner.id:
                raise self.foreign(found)

    def _read(self, lock: FolderLock) -> Owner:
        size = os.fstat(lock.descriptor).st_size
        return Owner.decode(os.pread(lock.descriptor, size, 0), self.file)

    def _write(self, owner: Owner, *, new: bool) -> FolderLock | None:
        """Write the file, locked and durable; None if there is one that should not be."""
        staged = self.root / f"{OWNER_FILE}.{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        lock = FolderLock(os.open(staged, flags, 0o666))
        try:
            if not try_lock(lock.descriptor):
                raise FolderInUseError(self.root, "")
            os.pwrite(lock.descriptor, owner.encode(), 0)
            os.fsync(lock.descriptor)
            if new:
                os.link(staged, self.file)
                staged.unlink()
            else:
                staged.replace(self.file)
            sync_folder(self.root)
        except FileExistsError:
            lock.close()
            staged.unlink()
            return None
        except BaseException:
            lock.close()
            staged.unlink(missing_ok=True)
            raise
        return lock
