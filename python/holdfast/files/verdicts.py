"""The readable part of a checkpoint, and what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

#: Errors of a file that is damaged, or that Holdfast did not write. `NewerFormatError` is not here:
#: nothing is judged, given up or deleted that a newer Holdfast wrote.
UNREADABLE = (OSError, NotImplementedError)


@dataclass(frozen=True)
class Damage:
    """Something that cannot be read (R75).

    Attributes
    ----------
    part : str or None
        The region, or the partition of an operator, whose state it belongs to. None for the
        metadata of a checkpoint, or a batch's entry in the commit log.
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
