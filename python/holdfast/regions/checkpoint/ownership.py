"""Folders that are one pipeline's: its checkpoint folder and its output folder.

A checkpoint folder has an identity, which moves with it. Its output folder names that identity, and
every checkpoint has it too, so that what goes on from a savepoint may go on with the output.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack, suppress

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.durable import write_text
from holdfast.regions.base.folder_lease import FolderLease, remove_leases
from holdfast.regions.base.folder_lock import lock_folder, note_holder
from holdfast.regions.base.folders import (
    IDENTITY_PROPERTY,
    OUTPUT_PROPERTY,
    RESTORED_IDENTITY_PROPERTY,
    CheckpointFolders,
    LeasedFolders,
)
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.base.paths import AnyPath, is_there
from holdfast.regions.checkpoint.history_pages import list_pages
from holdfast.regions.checkpoint.read import UNREADABLE, read_metadata
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks.owner import Candidate, Owner, Ownership


def new_identity() -> str:
    """Return an identity that no other checkpoint folder has."""
    return uuid.uuid4().hex


def own_folders(
    folders: CheckpointFolders, plan: PipelinePlan, output: Ownership | None, opened: ExitStack
) -> tuple[Owner, CheckpointFolders]:
    """Make the folders of a pipeline its own for as long as it runs.

    Parameters
    ----------
    folders : CheckpointFolders
        Its checkpoint folder; created if it is not there.
    plan : PipelinePlan
        The pipeline.
    output : Ownership or None
        Where it writes; None if that is not outside of its checkpoint folder.
    opened : ExitStack
        Takes the locks.

    Returns
    -------
    Owner
        What its output folder says of it from now on.
    CheckpointFolders
        Its checkpoint folder, to be used from now on: it refuses to write once it is lost.

    Raises
    ------
    FileExistsError
        If the output folder belongs to another pipeline, or holds output that the checkpoints do
        not know of.
    FolderInUseError
        If a pipeline runs in one of the folders.
    """
    if output is not None:
        # Nothing is created for a pipeline that is refused.
        output.require_free_for(_candidate(folders, plan, read_identity(folders) or ""))
    folders.root.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(folders.root, folders.lock)
    opened.enter_context(lock)
    note_holder(lock, plan.pipeline)
    candidate = _candidate(folders, plan, _kept_identity(folders))
    if output is not None:
        opened.enter_context(output.take(candidate))
    if isinstance(lock, FolderLease) and isinstance(folders.root, HadoopPath):
        folders = LeasedFolders(folders.root, lock)
    return candidate.owner, folders


def successor(
    metadata: CheckpointMetadata, folders: CheckpointFolders, plan: PipelinePlan, identity: str
) -> Candidate:
    """Return what a pipeline has to show for itself that begins from another one's checkpoint."""
    says_own = metadata.properties.get(OUTPUT_PROPERTY) == plan.sink.location
    return Candidate(
        Owner(identity, plan.pipeline, str(folders.root)),
        before=metadata.properties.get(IDENTITY_PROPERTY, ""),
        latest=metadata.id if says_own else None,
        restored=metadata.id,
    )


def read_identity(folders: CheckpointFolders) -> str | None:
    """Return the identity of a checkpoint folder; None if it has none yet."""
    return folders.read_identity() or _properties(folders).get(IDENTITY_PROPERTY)


def discard_unstarted(root: AnyPath) -> None:
    """Remove what a start left in a checkpoint folder that came to no checkpoint."""
    folders = CheckpointFolders(root)
    empty = (folders.metadata, folders.segments)
    ours = {path.name for path in (*empty, folders.history, folders.lock, folders.identity)}
    if root.is_dir() and {path.name for path in root.iterdir()} <= ours:
        for folder in empty:
            with suppress(OSError):
                folder.rmdir()
        if not any(map(is_there, empty)):
            with ExitStack() as held:
                held.enter_context(lock_folder(root, folders.lock))
                folders.identity.unlink(missing_ok=True)
                for page in list_pages(folders.history):
                    page.path.unlink(missing_ok=True)
                with suppress(OSError):
                    folders.history.rmdir()
                if not isinstance(folders.lock, HadoopPath):
                    folders.lock.unlink()
            if isinstance(folders.lock, HadoopPath):
                remove_leases(folders.lock)


def _candidate(folders: CheckpointFolders, plan: PipelinePlan, identity: str) -> Candidate:
    """Return what a pipeline has to show for itself that goes on in its own folder."""
    properties = _properties(folders)
    says_own = properties.get(OUTPUT_PROPERTY) == plan.sink.location
    ids = list_metadata(folders.metadata) if says_own else []
    return Candidate(
        Owner(identity, plan.pipeline, str(folders.root)),
        # It may have begun from there just before it could take the output folder over.
        before=properties.get(RESTORED_IDENTITY_PROPERTY, "") if says_own else "",
        latest=ids[-1] if ids else None,
    )


def _kept_identity(folders: CheckpointFolders) -> str:
    """Return the identity of a checkpoint folder, which is in a file of its own from now on."""
    found = folders.read_identity()
    if found:
        return found
    identity = read_identity(folders) or new_identity()
    write_text(folders.identity, identity)
    return identity


def _properties(folders: CheckpointFolders) -> dict[str, str]:
    """Return the properties of the newest checkpoint that can be read; empty if there is none."""
    with suppress(FileNotFoundError):
        for id in reversed(list_metadata(folders.metadata)):
            with suppress(*UNREADABLE):
                return read_metadata(folders.root, id).properties
    return {}
