"""Which pipeline an output folder belongs to: a file in it says so.

Readers see the rows of two pipelines that write into one folder, and each pipeline takes the files
of the other for its own: it withdraws them when it goes back, and sweeps up what is staged. So the
first one leaves a file there with the identity of its checkpoint folder, and has the folder to
itself while it runs: by a lock on that file, see `holdfast.regions.base.folder_lock`, or by a lease
where only the JVM reaches it, see `holdfast.regions.base.folder_lease`. Readers leave out these
files, by their names.
"""

from __future__ import annotations

import errno
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath, recorded_folder
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
    def decode(cls, content: bytes, path: object) -> Self:
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
    restored : int or None
        The checkpoint that it begins from, if it is not in its folder yet.
    """

    owner: Owner
    before: str = ""
    latest: int | None = None
    restored: int | None = None


class Ownership(ABC):
    """Where a pipeline writes, to be asked for and to be owned."""

    @abstractmethod
    def require_free_for(self, candidate: Candidate) -> None:
        """Check that a pipeline may write there. Nothing is changed.

        Raises
        ------
        FileExistsError
            If it belongs to another one, or holds output that the pipeline does not know of.
        FolderInUseError
            If another one runs that writes into it.
        """

    @abstractmethod
    def take(self, candidate: Candidate) -> AbstractContextManager[object]:
        """Make it the pipeline's own. Errors are those of `require_free_for`.

        Returns
        -------
        context manager
            To be held for as long as the pipeline runs.
        """

    @abstractmethod
    def require_still(self, owner: Owner) -> None:
        """Check that no other pipeline took over, where that can be.

        Raises
        ------
        FileExistsError, FolderLostError
            If one did.
        """

    @property
    def mounted_file(self) -> Path | None:
        """A file that whoever writes there sees once it is taken; None where all reach the same."""
        return None


class OutputFolder(Ownership):
    """An output folder; see `sinks.destination.output_folder`.

    Parameters
    ----------
    root : Path or HadoopPath
        The folder.
    published_after : callable
        Returns what attempts after the given one published there; see `TwoPhaseSink`.
    """

    def __init__(self, root: AnyPath, published_after: Callable[[int], Sequence[str]]) -> None:
        self.root = root
        self.file = root / OWNER_FILE
        self._published_after = published_after

    @property
    def mounted_file(self) -> Path | None:
        """See `Ownership`."""
        return None if isinstance(self.file, HadoopPath) else self.file

    def require_known(self, candidate: Candidate) -> None:
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

    def require_own(self, found: Owner, candidate: Candidate) -> None:
        """Check that the owner that the file names is the pipeline, or gives way to it."""
        if found.id == candidate.owner.id:
            self._require_no_copy(found, candidate.owner)
            return
        if found.id == candidate.before:
            return
        if self._published_after(-1) or any((self.root / STAGED_FOLDER).glob("*/*")):
            raise self.foreign(found)
        # Of a pipeline that has no row here, and takes it for another's when it comes back.

    def _require_no_copy(self, found: Owner, owner: Owner) -> None:
        """Check that a checkpoint folder was moved, if it was, and not copied."""
        if found.checkpoint == owner.checkpoint:
            return
        there = None
        with suppress(OSError, UnicodeError):
            there = CheckpointFolders(recorded_folder(found.checkpoint)).read_identity()
        if there == owner.id:
            raise self.foreign(found)

    def foreign(self, found: Owner) -> FileExistsError:
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
