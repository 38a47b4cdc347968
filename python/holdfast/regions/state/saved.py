"""States as checkpoints have them: between an operator's handles and the segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast._core import Piece, SegmentRef

if TYPE_CHECKING:
    from typing_extensions import Buffer

StateKind = Literal["array", "value", "list", "union", "broadcast"]

Append = Callable[["Buffer"], SegmentRef]
"""Writes one segment for the attempt at hand."""

Lease = Callable[[Sequence[SegmentRef]], Sequence[bool]]
"""Asks which older segments the attempt at hand may refer to, see `SnapshotManager.lease`."""


LeaseOf = Callable[[str, Sequence[SegmentRef]], Sequence[bool]]
"""Asks the same for the state of this name."""


class StateError(ValueError):
    """A state was declared, or used, in a way that cannot be kept."""


@dataclass(frozen=True)
class StoredPiece:
    """A part of a state in a segment.

    Parameters
    ----------
    piece : Piece
        Where it lies.
    payload_bytes : int
        Size of the segment's payload.
    """

    piece: Piece
    payload_bytes: int


@dataclass(frozen=True)
class SavedState:
    """A state as a checkpoint has it.

    Parameters
    ----------
    name : str
        Name it was declared with.
    kind : str
        Kind it was declared with.
    dtype : str
        NumPy's array-interface string. Of an array the one of its items (``"<f8"``); of anything
        else ``"|u1"``, a JSON text in UTF-8, or ``"|V1"``, bytes as they are.
    shape : tuple of int
        Shape of an array; of anything else the number of bytes.
    data : memoryview
        Content; arrays in C order. Where it is writable it belongs to the instance that restores
        it.
    stored : tuple of StoredPiece
        Where the content lies in segments, in order; empty if it does not, or not yet.
    """

    name: str
    kind: StateKind
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    stored: tuple[StoredPiece, ...] = ()
