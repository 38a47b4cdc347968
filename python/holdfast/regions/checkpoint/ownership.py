"""Folders that belong to one pipeline: its checkpoint folder and its output folder.

A checkpoint folder has an identity, which moves with it. Its output folder names that identity.
Every checkpoint has it too, so a pipeline that begins from a savepoint may continue the output.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from holdfast._core import CheckpointMetadata, NewerFormatError
from holdfast.files.paths import AnyPath, listed
from holdfast.files.verdicts import UNREADABLE
from holdfast.regions.checkpoint.history import list_pages
from holdfast.regions.files.folders import (
    IDENTITY_PROPERTY,
    RESTORED_IDENTITY_PROPERTY,
    CheckpointFolders,
    output_property,
)
from holdfast.regions.files.lock import give_up, lock_folder
from holdfast.regions.sinks.destination import Output
from holdfast.regions.sinks.owner import Candidate, OutputOwner


def new_identity() -> str:
    """Return an identity that no other checkpoint folder has."""
    return uuid.uuid4().hex


def own_folders(
    folders: CheckpointFolders, pipeline: str, outputs: Sequence[Output], opened: ExitStack
) -> tuple[OutputOwner, CheckpointFolders]:
    """Take a running pipeline's folders, for its checkpoints and its outputs.

    Creates the checkpoint folder if needed. Returns the owner that the output folders now name, and
    the checkpoint folder to use: it refuses to write once it is lost. Raises a FileExistsError if
    an output folder belongs to another pipeline, or has output that the checkpoints do not know,
    and a FolderInUseError if a pipeline runs in one of the folders.
    """
    # Check first, so that nothing is created for a pipeline that is refused.
    before = OutputOwner(read_identity(folders) or "", pipeline, str(folders.root))
    for output in outputs:
        if output.ownership is not None:
            output.ownership.require_free_for(_candidate(folders, output, before))
    folders.root.make_folder(exist_ok=True)
    lock = lock_folder(folders.lock)
    opened.enter_context(lock)
    lock.note_pipeline(pipeline)
    owner = OutputOwner(_kept_identity(folders), pipeline, str(folders.root))
    for output in outputs:
        if output.ownership is not None:
            opened.enter_context(output.ownership.take(_candidate(folders, output, owner)))
    return owner, CheckpointFolders(folders.root, lock)


def successor(metadata: CheckpointMetadata, output: Output, owner: OutputOwner) -> Candidate:
    """Return the claim to an output folder of a pipeline that begins from another checkpoint."""
    says_own = metadata.properties.get(output_property(output.name)) == output.sink.location
    return Candidate(
        owner,
        before=metadata.properties.get(IDENTITY_PROPERTY, ""),
        latest=metadata.id if says_own else None,
        restored=metadata.id,
    )


def read_identity(folders: CheckpointFolders) -> str | None:
    """Return the identity of a checkpoint folder; None if it has none yet."""
    return folders.read_identity() or _own_properties(folders).get(IDENTITY_PROPERTY)


def discard_unstarted(root: AnyPath) -> None:
    """Remove the files of a start that made no checkpoint."""
    folders = CheckpointFolders(root)
    empty = (folders.metadata, folders.segments)
    ours = {path.name for path in (*empty, folders.history, folders.lock, folders.identity)}
    if root.is_dir() and {path.name for path in root.iterdir()} <= ours:
        for folder in empty:
            with suppress(OSError):
                folder.rmdir()
        if not {path.name for path in listed(root)} & {folder.name for folder in empty}:
            with lock_folder(folders.lock) as lock:
                folders.identity.unlink(missing_ok=True)
                for page in list_pages(folders.history):
                    page.unlink(missing_ok=True)
                with suppress(OSError):
                    folders.history.rmdir()
                give_up(lock, folders.lock)


def _candidate(folders: CheckpointFolders, output: Output, owner: OutputOwner) -> Candidate:
    """Return the claim to an output folder of a pipeline that continues in its own folder."""
    properties = _own_properties(folders)
    says_own = properties.get(output_property(output.name)) == output.sink.location
    ids = folders.ids() if says_own else []
    return Candidate(
        owner,
        # A start may have ended after its restore, before it could take the output folder.
        before=properties.get(RESTORED_IDENTITY_PROPERTY, "") if says_own else "",
        latest=ids[-1] if ids else None,
    )


def _kept_identity(folders: CheckpointFolders) -> str:
    """Return the identity of a checkpoint folder, and write its file if it has none."""
    identity = folders.read_identity()
    if not identity:
        identity = read_identity(folders) or new_identity()
        folders.identity.replace_text(identity)
    return identity


def newest_properties(
    folders: CheckpointFolders, *skipped: type[Exception]
) -> dict[str, str] | None:
    """Return properties of the newest checkpoint that reads without a `skipped` error, or None."""
    with suppress(FileNotFoundError):
        for id in reversed(folders.ids()):
            with suppress(*skipped):
                return folders.read(id).properties
    return None


def _own_properties(folders: CheckpointFolders) -> dict[str, str]:
    return newest_properties(folders, *UNREADABLE, NewerFormatError) or {}
