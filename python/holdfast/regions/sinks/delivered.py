"""Up to which checkpoint a function was called with output; see `BatchFunction`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from holdfast.regions.base.durable import write_number
from holdfast.regions.base.paths import AnyPath

_DONE: Final = "last-delivered"


def last_delivered(folder: AnyPath) -> int:
    """Return the id of the last checkpoint whose output the function has had; 0: none."""
    with suppress(FileNotFoundError):
        return int((folder / _DONE).read_text())
    return 0


def note_delivered(folder: AnyPath, checkpoint: int) -> None:
    """Keep the id of a checkpoint, durably."""
    write_number(folder / _DONE, checkpoint)


def forget_delivered(folder: AnyPath) -> None:
    """Remove what was noted."""
    (folder / _DONE).unlink(missing_ok=True)
