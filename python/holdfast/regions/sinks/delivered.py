"""Up to which checkpoint a function was called with output; see `BatchFunction`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.regions.base.durable import write_number

_DONE: Final = "last-delivered"


def last_delivered(folder: Path) -> int:
    """Return the id of the last checkpoint whose output the function has had; 0: none."""
    with suppress(FileNotFoundError):
        return int((folder / _DONE).read_text())
    return 0


def note_delivered(folder: Path, checkpoint: int) -> None:
    """Keep the id of a checkpoint, durably."""
    write_number(folder / _DONE, checkpoint)


def forget_delivered(folder: Path) -> None:
    """Remove what was noted."""
    (folder / _DONE).unlink(missing_ok=True)
