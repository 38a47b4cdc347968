"""The file in an output folder that says which pipeline the folder belongs to.

If two pipelines wrote into one folder, readers would see the rows of both. Each pipeline would
withdraw and sweep up files of the other. So the first one leaves a file there with the identity of
its checkpoint folder. While it runs it has the folder to itself: by a lock on that file
(`holdfast.regions.files.lock`), or by a lease where only the JVM reaches it
(`holdfast.regions.files.lease`). Readers skip these files by their names.
"""

from __future__ import annotations

import errno
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from holdfast.files.paths import AnyPath, listed, listed_with_status, recorded_folder
from holdfast.regions.base.versions import require_known
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.files.lock import Hold, read_if_free, take_by_file
from holdfast.regions.sinks.layout import LEASES_FOLDER, STAGED_FOLDER

OWNER_FILE: Final = "_holdfast_owner"

VERSION: Final = 1


@dataclass(frozen=True)
class OutputOwner:
    """A pipeline, as its file names it: the id of its checkpoint folder; the rest is for people."""

    id: str
    pipeline: str
    checkpoint: str

    def encode(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, path: object) -> Self:
        """Decode the content of a file, or raise OSError; NewerFormatError for a newer Holdfast."""
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(content)
            require_known(str(path), found["version"], VERSION)
            return cls(str(found["id"]), str(found["pipeline"]), str(found["checkpoint"]))
        raise OSError(
            errno.EINVAL,
            "it does not say which pipeline the folder belongs to: remove it if the folder is that "
            "of this pipeline alone",
            str(path),
        )


@dataclass(frozen=True)
class Candidate:
    """A pipeline that wants to write into a folder.

    - `before`: identity of the pipeline that it continues, if that wrote there; else empty.
    - `latest`: its latest checkpoint, or the one it continues, if its output is there; or None.
    - `restored`: the checkpoint it begins from, if that is not in its own checkpoint folder yet.
    """

    owner: OutputOwner
    before: str = ""
    latest: int | None = None
    restored: int | None = None


class Ownership(ABC):
    """A place where a pipeline writes, which it has to itself while it runs."""

    @abstractmethod
    def require_free_for(self, candidate: Candidate) -> None:
        """Check that a pipeline may write there. Changes nothing.

        Raises a FileExistsError if the place belongs to another one or has output that the
        pipeline does not know, and a FolderInUseError if another one that writes there runs.
        """

    @abstractmethod
    def take(self, candidate: Candidate) -> AbstractContextManager[object]:
        """Take it while the result is held, which is the whole run. See `require_free_for`."""

    @abstractmethod
    def require_still(self, owner: OutputOwner) -> None:
        """Raise FileExistsError or FolderLostError if another pipeline took over, if one can."""

    @property
    def mounted_file(self) -> Path | None:
        """A file that every writer sees once the place is taken; None if all reach one place."""
        return None


class OutputFolder(Ownership):
    """An output folder, with a file in it that names its pipeline."""

    def __init__(self, root: AnyPath, published_after: Callable[[int], Sequence[str]]) -> None:
        self.root = root
        self.file = root / OWNER_FILE
        self._published_after = published_after
        self._held: Hold | None = None

    @property
    def mounted_file(self) -> Path | None:
        """See `Ownership`."""
        return self.file.local

    def require_free_for(self, candidate: Candidate) -> None:
        """See `Ownership`."""
        self._owner_file(candidate, read_if_free(self.file, LEASES_FOLDER))

    def take(self, candidate: Candidate) -> Hold:
        """See `Ownership`."""
        judge = partial(self._owner_file, candidate)
        self._held = take_by_file(self.file, LEASES_FOLDER, judge, candidate.owner.pipeline)
        return self._held

    def require_still(self, owner: OutputOwner) -> None:
        """See `Ownership`."""
        if self._held is not None:
            self._held.require_held()
        if self.mounted_file is not None:
            with suppress(FileNotFoundError):
                found = OutputOwner.decode(self.mounted_file.read_bytes(), self.file)
                if found.id != owner.id:
                    raise self._foreign(found)

    def _owner_file(self, candidate: Candidate, content: bytes | None) -> bytes | None:
        """Return the new content of the owner file; None: unchanged. See `take_by_file`."""
        if content is None:
            self._require_known(candidate)
        else:
            found = OutputOwner.decode(content, self.file)
            self._require_own(found, candidate)
            if found == candidate.owner:
                return None
        return candidate.owner.encode()

    def _require_known(self, candidate: Candidate) -> None:
        """Check that files in a folder without an owner are the pipeline's."""
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

    def _require_own(self, found: OutputOwner, candidate: Candidate) -> None:
        """Check that the owner that the file names is the pipeline, or gives way to it."""
        if found.id == candidate.owner.id:
            self._require_no_copy(found, candidate.owner)
            return
        if found.id == candidate.before:
            return
        attempts = listed_with_status(self.root / STAGED_FOLDER)
        if self._published_after(-1) or any(
            status.is_folder and listed(folder) for folder, status in attempts
        ):
            raise self._foreign(found)
        # The owner has no row here. On its return it finds that the folder is another's.

    def _require_no_copy(self, found: OutputOwner, owner: OutputOwner) -> None:
        """Check that a checkpoint folder, if it is elsewhere now, was moved and not copied."""
        if found.checkpoint == owner.checkpoint:
            return
        there = None
        with suppress(OSError, UnicodeError):
            there = CheckpointFolders(recorded_folder(found.checkpoint)).read_identity()
        if there == owner.id:
            raise self._foreign(found)

    def _foreign(self, found: OutputOwner) -> FileExistsError:
        """Return the error for a folder that is another pipeline's."""
        return FileExistsError(
            errno.EEXIST,
            f"the folder belongs to pipeline {found.pipeline!r} with its checkpoints in "
            f"{found.checkpoint}: readers would see rows of both, and each would remove files of "
            "the other. Write into another folder, start with that checkpoint folder, or begin "
            f"from it with restore=holdfast.restore({found.checkpoint!r}); if that pipeline is "
            f"given up, move its output elsewhere, {OWNER_FILE} included",
            str(self.root),
        )
