"""The form of states between an operator's handles and segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast._core import Piece, SegmentRef

if TYPE_CHECKING:
    from typing_extensions import Buffer

StateKind = Literal["array", "value", "list", "union", "broadcast", "table"]

Append = Callable[["Buffer"], SegmentRef]
"""Writes one segment for the attempt at hand."""

Lease = Callable[[Sequence[SegmentRef]], Sequence[bool]]
"""Returns for each older segment if this attempt may refer to it, see `SnapshotManager.lease`."""


LeaseOf = Callable[[str, Sequence[SegmentRef]], Sequence[bool]]
"""Returns the same for the state of this name."""


class StateError(ValueError):
    """A state was declared, or used, in a way that is not allowed."""


class StateChangedError(StateError):
    """A state is declared in another form than in the checkpoint, without conversion."""


@dataclass(frozen=True)
class StoredPiece:
    """A part of a state in a segment."""

    piece: Piece
    payload_bytes: int


@dataclass(frozen=True)
class SavedState:
    """A state in a checkpoint.

    Parameters
    ----------
    dtype : str
        NumPy's array-interface string of an array's items (``"<f8"``). Other states have ``"|u1"``
        for a JSON text in UTF-8, ``"|V1"`` for raw bytes, ``"|S1"`` for a map, or nothing for a
        table.
    shape : tuple of int
        Shape of an array; the number of bytes of any other state.
    data : memoryview
        Content; arrays in C order, and of a table its description. If it is writable, it belongs to
        the instance that restores it.
    stored : tuple of StoredPiece
        Places of the content in segments, in order; empty if it is in none yet.
    """

    name: str
    kind: StateKind
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    stored: tuple[StoredPiece, ...] = ()
