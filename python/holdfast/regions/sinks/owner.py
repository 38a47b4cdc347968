"""Which pipeline an output folder belongs to: a file in it says so.

Readers see the rows of two pipelines that write into one folder, and each pipeline takes the files
of the other for its own: it withdraws them when it goes back, and sweeps up what is staged. So the
first one leaves a file there with the identity of its checkpoint folder, and locks it while it
runs; see `holdfast.regions.base.folder_lock`. Readers leave out the file, by its name.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from holdfast.regions.base.durable import explained, sync_folder
from holdfast.regions.base.folder_lock import FolderInUseError, FolderLock, lock_if_there, try_lock
from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.sinks.layout import STAGED_FOLDER

OWNER_FILE: Final = "_holdfast_owner"

VERSION: Final = 1


@dataclass(frozen=True)
class Owner:
    """A pipeline, as the file in its output folder names it.

    Parameters
    ----------
    id : str
        Identity of its checkpoint folder.
    pipeline : str
        Its name, for people.
    checkpoint : str
        Path of its checkpoint folder, for people.
    """

    id: str
    pipeline: str
    checkpoint: str

    def encode(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, path: Path) -> Self:
        """Return what a file says.

        Raises
        ------
        OSError
            If it is something else.
        """
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(content)
            return cls(str(found["id"]), str(found["pipeline"]), str(found["checkpoint"]))
        raise OSError(
            errno.EINVAL,
            "it does not say which pipeline the folder belongs to: remove it if the folder is that "
            "of this pipeline alone",
            str(path),
        )


@dataclass(frozen=True)
class Candidate:
    """What a pipeline has to show for itself when it wants to write into a folder.

    Parameters
    ----------
    owner : Owner
        The pipeline.
    before : str
        Identity of the pipeline whose checkpoint it goes on from, if that wrote into the folder;
        else empty.
    latest : int or None
        Its latest checkpoint, or the one it goes on from, if that says that its output is in the
        folder; None if there is no such checkpoint.
    """

    owner: Owner
    before: str = ""
    latest: int | None = None


class OutputFolder:
    """An output folder, to be asked for and to be owned.

    Parameters
    ----------
    root : Path
        The folder.
    published_after : callable
        Returns what attempts after the given one published there; see `TwoPhaseSink`.
    """

    def __init__(self, root: Path, published_after: Callable[[int], Sequence[str]]) -> None:
        self.root = root
        self.file = root / OWNER_FILE
        self._published_after = published_after

    def require_free_for(self, candidate: Candidate) -> None:
        """Check that a pipeline may write into the folder. Nothing is changed.

        Raises
        ------
        FileExistsError
            If it belongs to another one, or holds output that the pipeline does not know of.
        FolderInUseError
            If another one runs that writes into it.
        """
        lock = lock_if_there(self.root, self.file)
        if lock is None:
            self._require_known(candidate)
        else:
            with lock:
                self._require_own(self._read(lock), candidate)

    def take(self, candidate: Candidate) -> FolderLock:
        """Make the folder the pipeline's own, and lock it. Errors are those of `require_free_for`.

        Returns
        -------
        FolderLock
            To be held for as long as the pipeline runs.
        """
        with explained(f"cannot make {self.root} the folder of this pipeline"):
            self.root.mkdir(parents=True, exist_ok=True)
        while True:
            lock = lock_if_there(self.root, self.file)
            if lock is None:
                self._require_known(candidate)
                if (lock := self._write(candidate.owner, new=True)) is not None:
                    return lock
                continue
            found = self._read(lock)
            self._require_own(found, candidate)
            if found == candidate.owner:
                return lock
            with lock:
                # Locked before it is there: between the two no other pipeline gets in.
                if (lock_of_new := self._write(candidate.owner, new=False)) is not None:
                    return lock_of_new

    def require_still(self, owner: Owner) -> None:
        """Check that no other pipeline took over, where there are no locks.

        Raises
        ------
        FileExistsError
            If one did.
        """
        with suppress(FileNotFoundError):
            found = Owner.decode(self.file.read_bytes(), self.file)
            if found.id != owner.id:
                raise self._foreign(found)

    def _read(self, lock: FolderLock) -> Owner:
        size = os.fstat(lock.descriptor).st_size
        return Owner.decode(os.pread(lock.descriptor, size, 0), self.file)

    def _require_known(self, candidate: Candidate) -> None:
        """Check that what was published in a folder without an owner is the pipeline's."""
        known = -1 if candidate.latest is None else candidate.latest
        if unknown := self._published_after(known):
            raise FileExistsError(
                errno.EEXIST,
                f"{self.root} holds {len(unknown)} files that a pipeline published and that are "
                f"not of the checkpoints in {candidate.owner.checkpoint}: readers would see rows "
                "of both, or the same rows twice. Write into another folder, move these files "
                "elsewhere, or go on from the checkpoints that belong to them. The first is",
                unknown[0],
            )

    def _require_own(self, found: Owner, candidate: Candidate) -> None:
        if found.id == candidate.owner.id:
            self._require_no_copy(found, candidate.owner)
            return
        if found.id == candidate.before:
            return
        if self._published_after(-1) or any((self.root / STAGED_FOLDER).glob("*/*")):
            raise self._foreign(found)
        # Of a pipeline that has no row here, and takes it for another's when it comes back.

    def _require_no_copy(self, found: Owner, owner: Owner) -> None:
        """Check that a checkpoint folder was moved, if it was, and not copied."""
        if found.checkpoint == owner.checkpoint:
            return
        there = None
        with suppress(OSError, UnicodeError):
            there = CheckpointFolders(Path(found.checkpoint)).read_identity()
        if there == owner.id:
            raise self._foreign(found)

    def _foreign(self, found: Owner) -> FileExistsError:
        return FileExistsError(
            errno.EEXIST,
            f"the folder belongs to pipeline {found.pipeline!r} with its checkpoints in "
            f"{found.checkpoint}: readers would see rows of both, and each would remove files of "
            "the other. Write into another folder, start with that checkpoint folder, or begin "
            f"from it with restore=holdfast.restore({found.checkpoint!r}); if that pipeline is "
            f"given up, move its output elsewhere, {OWNER_FILE} included",
            str(self.root),
        )

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
