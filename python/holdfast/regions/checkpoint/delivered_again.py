"""Rows that a function has had, and gets again because a pipeline goes back."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._core import NewerFormatError
from holdfast.files.verdicts import UNREADABLE
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.sinks.delivered import last_delivered


def delivered_again(folders: CheckpointFolders, checkpoint: int, output: str) -> str:
    """Return which rows a function gets again after a checkpoint, as text; empty if none.

    `output` is the name of the side output whose function it is; empty for the main one.
    """
    if not folders.output(output).is_dir():
        return ""
    delivered = last_delivered(folders.output(output))
    later = [id for id in folders.ids() if id > checkpoint]
    later = [id for id in later if _has_rows(folders, id, output)]
    had = [id for id in later if id <= delivered]
    parts = []
    if had:
        parts.append(f"has had the rows of {_named(had)}")
    elif delivered > checkpoint:
        # The metadata of these checkpoints may be deleted by now.
        parts.append(f"has had rows of checkpoints up to {delivered}")
    if perhaps := [id for id in later if id > delivered]:
        # The process may have died after the call, before it noted that.
        parts.append(f"may have had those of {_named(perhaps)}")
    if not parts:
        return ""
    known = ", and ".join(parts)
    of = f" of side output {output!r}" if output else ""
    return f"the function of foreach_batch{of} {known}; these rows come again, under new ids"


def _named(ids: Sequence[int]) -> str:
    return f"checkpoint{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _has_rows(folders: CheckpointFolders, id: int, output: str) -> bool:
    """Return whether a function was called for a checkpoint; True if it cannot be read."""
    try:
        regions = folders.read(id).regions.values()
    except (*UNREADABLE, NewerFormatError):
        return True
    return any(one.output == output for entry in regions for one in entry.staged)
