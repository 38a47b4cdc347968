"""Whether a checkpoint can be restored at all, and which one can instead (R75)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from holdfast._inspect import Verdict, Verification
from holdfast.regions.base.errors import RegionalQueryError


class DamagedCheckpointError(RegionalQueryError):
    """A checkpoint, or something that it needs, is missing or corrupt.

    Attributes
    ----------
    checkpoint : int
        Its id.
    intact : int or None
        Id of the newest older checkpoint that is intact.
    """

    def __init__(self, verdict: Verdict, intact: int | None) -> None:
        damage = verdict.damage[0]
        what = "its metadata" if damage.region is None else f"state of region {damage.region!r}"
        more = f" ({len(verdict.damage) - 1} more are unreadable)" if verdict.damage[1:] else ""
        way_out = (
            f"checkpoint {intact} is intact: with checkpoint_id={intact}, the pipeline goes back "
            "to it, and rows since then are processed again"
            if intact is not None
            else "no older checkpoint is intact"
        )
        super().__init__(
            f"checkpoint {verdict.checkpoint} cannot be restored: {what}: {damage.message}{more}. "
            f"`holdfast verify` names everything that is damaged. {way_out}"
        )
        self.checkpoint = verdict.checkpoint
        self.intact = intact


def require_intact(root: Path, checkpoint: int, older: Sequence[int]) -> None:
    """Read everything that a checkpoint needs, and fail if anything is damaged.

    Parameters
    ----------
    root : Path
        The checkpoint folder.
    checkpoint : int
        Id of the checkpoint.
    older : sequence of int
        Ids of the retained checkpoints before it, ascending, to offer instead.

    Raises
    ------
    DamagedCheckpointError
        Naming checkpoint, owner, file and offset, and what to do.
    """
    verification = Verification(root)
    verdict = verification.verify(checkpoint, _unseen)
    if verdict.damage:
        intact = (id for id in reversed(older) if not verification.verify(id, _unseen).damage)
        raise DamagedCheckpointError(verdict, next(intact, None))


def choose(ids: Sequence[int], asked: int | None, folder: Path) -> int:
    """Return the latest of the retained checkpoints, or the one that is asked for.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    """
    if (asked is None and not ids) or (asked is not None and asked not in ids):
        wanted = "a checkpoint" if asked is None else f"checkpoint {asked}"
        there = ", ".join(map(str, ids)) or "none"
        raise FileNotFoundError(errno.ENOENT, f"expected {wanted}, found {there}", str(folder))
    return ids[-1] if asked is None else asked


def _unseen(done: int, total: int) -> None:
    """Nobody watches the progress."""
