"""The readable part of a checkpoint, and its damage."""

from __future__ import annotations

from dataclasses import dataclass

#: Errors of a file that is damaged, or not Holdfast's. `NewerFormatError` is left out: nothing of a
#: newer Holdfast is judged, abandoned or deleted.
UNREADABLE = (OSError, NotImplementedError)


@dataclass(frozen=True)
class Damage:
    """Something that cannot be read (R75).

    Attributes
    ----------
    part : str or None
        The region, or the partition of an operator, that needs it. None for the metadata of a
        checkpoint, or a batch's entry in the commit log.
    message : str
        The problem, with file, offset and owner.
    """

    part: str | None
    message: str


@dataclass(frozen=True)
class Verdict:
    """The readable part of one checkpoint, or of the state of one batch of a query.

    Attributes
    ----------
    parts, readable_parts : int
        Number of regions or partitions, and of those with all of their state and in-flight data
        readable. Both are 0 if the list of them cannot be read.
    segments, readable_segments : int
        Number of segments it needs, and of those that can be read.
    """

    id: int
    parts: int = 0
    readable_parts: int = 0
    segments: int = 0
    readable_segments: int = 0
    damage: tuple[Damage, ...] = ()
