"""Rows that a function has had, and gets again because a pipeline goes back."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.checkpoint.read import UNREADABLE, read_metadata
from holdfast.regions.sinks.delivered import last_delivered


def delivered_again(folders: CheckpointFolders, checkpoint: int) -> str:
    """Say which rows a function has had that come again after a checkpoint.

    Parameters
    ----------
    folders : CheckpointFolders
        Of the pipeline that called the function.
    checkpoint : int
        What is gone back to.

    Returns
    -------
    str
        For people; empty if no such rows are known.

    Raises
    ------
    OSError
        If the file system does not say.
    """
    if not folders.output.is_dir():
        return ""
    delivered = last_delivered(folders.output)
    later = [id for id in list_metadata(folders.metadata) if id > checkpoint]
    later = [id for id in later if _has_rows(folders, id)]
    had = [id for id in later if id <= delivered]
    parts = []
    if had:
        parts.append(f"has had the rows of {_named(had)}")
    elif delivered > checkpoint:
        # The metadata of those may be deleted by now.
        parts.append(f"has had rows of checkpoints up to {delivered}")
    if perhaps := [id for id in later if id > delivered]:
        # Between the end of its call and the note of that, the process may have died.
        parts.append(f"may have had those of {_named(perhaps)}")
    if not parts:
        return ""
    known = ", and ".join(parts)
    return f"the function of foreach_batch {known}; these rows come again, under new ids"


def _named(ids: Sequence[int]) -> str:
    return f"checkpoint{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _has_rows(folders: CheckpointFolders, id: int) -> bool:
    """Whether a function was called for a checkpoint. One that cannot be read may have had rows."""
    try:
        regions = read_metadata(folders.root, id).regions.values()
    except UNREADABLE:
        return True
    return any(entry.staged for entry in regions)
