"""States in the form of checkpoints: between an operator's handles and the segments."""

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
"""Asks which older segments the attempt at hand may refer to, see `SnapshotManager.lease`."""


LeaseOf = Callable[[str, Sequence[SegmentRef]], Sequence[bool]]
"""Asks the same for the state of this name."""


class StateError(ValueError):
    """A state was declared, or used, in a way that cannot be kept."""


class StateChangedError(StateError):
    """A state is declared in another form than the checkpoint has it in, and not converted."""


@dataclass(frozen=True)
class StoredPiece:
    """A part of a state in a segment."""

    piece: Piece
    payload_bytes: int


@dataclass(frozen=True)
class SavedState:
    """A state as a checkpoint has it.

    Parameters
    ----------
    dtype : str
        NumPy's array-interface string of an array's items (``"<f8"``). Other states have ``"|u1"``
        for a JSON text in UTF-8, ``"|V1"`` for bytes as they are, ``"|S1"`` for a map, or nothing
        for a table.
    shape : tuple of int
        Shape of an array; the number of bytes of any other state.
    data : memoryview
        Content; arrays in C order, and of a table its description. If it is writable, it belongs to
        the instance that restores it.
    stored : tuple of StoredPiece
        Places of the content in segments, in order; empty if it is in none, or not yet.
    """

    name: str
    kind: StateKind
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    stored: tuple[StoredPiece, ...] = ()
