"""The last checkpoint whose output a function was called with; see `BatchFunction`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from holdfast.files.paths import AnyPath

_DONE: Final = "last-delivered"


def last_delivered(folder: AnyPath) -> int:
    """Return the id of the last checkpoint whose output the function received; 0: none."""
    with suppress(FileNotFoundError):
        return int((folder / _DONE).read_text())
    return 0


def note_delivered(folder: AnyPath, checkpoint: int) -> None:
    """Keep the id of a checkpoint, durably."""
    (folder / _DONE).replace_text(str(checkpoint))


def forget_delivered(folder: AnyPath) -> None:
    """Remove the note."""
    (folder / _DONE).unlink(missing_ok=True)
