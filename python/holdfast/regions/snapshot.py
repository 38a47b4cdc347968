"""From frozen states to segments, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from holdfast._core import OperatorEntry, Owner, Piece, SegmentRef, StateEntry
from holdfast.regions.state import SavedState

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Bytes of state below which an operator's states lie in the metadata itself (SEMANTICS J).
INLINE_BYTES: Final = 1024


class SegmentStore(Protocol):
    """Where a region task puts segments: `holdfast.SnapshotManager`, or the executor's one."""

    def append(
        self,
        owner: Owner,
        checkpoint: int,
        data: Buffer,
        *,
        kind: Literal["snapshot", "changelog", "base_image", "in_flight"] = "snapshot",
        lineage: Sequence[SegmentRef] = (),
        entries: int = 0,
    ) -> SegmentRef:
        """Append a segment; see `holdfast.SnapshotManager.append`."""

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        """Read and verify a segment; see `holdfast.SnapshotManager.read`."""

    def persist_segments(self, checkpoint: int, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        """Make segments durable; see `holdfast.SnapshotManager.persist_segments`."""

    def release(self, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        """Let go of segments of a refused acknowledgement."""


@dataclass(frozen=True)
class RegionOwners:
    """Owners of a region's segments.

    Parameters
    ----------
    pipeline : str
        Name of the pipeline.
    region : str
        Name of the region.
    """

    pipeline: str
    region: str

    def state(self, operator: str) -> Owner:
        """Owner of the states of one operator (instance)."""
        return Owner(self.pipeline, operator, self.region)

    def in_flight(self, created: int) -> Owner:
        """Owner of the in-flight data that attempt `created` stored.

        It has an origin of its own: a region that keeps failing has state of one old checkpoint
        and in-flight data of several later ones.
        """
        return Owner(self.pipeline, "in-flight", self.region, str(created))


def write_operator(
    store: SegmentStore, owner: Owner, checkpoint: int, name: str, states: Sequence[SavedState]
) -> OperatorEntry:
    """Write the states of one operator as one segment, or inline them when they are small.

    Parameters
    ----------
    store : SegmentStore
        Where to.
    owner : Owner
        Owner of the segment.
    checkpoint : int
        The attempt it is written for.
    name : str
        Name of the operator (instance).
    states : sequence of SavedState
        What `StateRegistry.freeze` returned.

    Returns
    -------
    OperatorEntry
        What the checkpoint's metadata says about the operator. Nothing of it is durable before
        `persist_segments`.

    Raises
    ------
    OSError
        If the segment cannot be written.
    """
    total = sum(state.data.nbytes for state in states)
    if total <= INLINE_BYTES:
        inlined = [_entry(state, inline=bytes(state.data)) for state in states]
        return OperatorEntry(name, inlined)
    data = states[0].data if len(states) == 1 else b"".join(state.data for state in states)
    ref = store.append(owner, checkpoint, data, entries=len(states))
    entries = []
    offset = 0
    for state in states:
        pieces = [Piece(ref, offset, state.data.nbytes)] if state.data.nbytes else []
        entries.append(_entry(state, pieces=pieces))
        offset += state.data.nbytes
    return OperatorEntry(name, entries)


def read_operator(store: SegmentStore, owner: Owner, entry: OperatorEntry) -> Iterator[SavedState]:
    """Read the states of one operator back.

    Every segment is read once, however many states lie in it.

    Raises
    ------
    CorruptSegmentError, FileNotFoundError
        If a segment is damaged or missing; the message names owner, file and offset.
    """
    payloads: dict[SegmentRef, bytes] = {}

    def piece_of(piece: Piece) -> memoryview:
        if piece.ref not in payloads:
            payloads[piece.ref] = store.read(piece.ref, owner)
        end = piece.payload_offset + piece.length
        return memoryview(payloads[piece.ref])[piece.payload_offset : end]

    for state in entry.states:
        if state.inline is not None:
            data = memoryview(state.inline)
        elif len(state.pieces) == 1:
            data = piece_of(state.pieces[0])
        else:
            data = memoryview(b"".join(piece_of(piece) for piece in state.pieces))
        yield SavedState(state.name, state.kind, state.dtype, state.shape, data)


def segments_of(entry: OperatorEntry) -> list[SegmentRef]:
    """Return references of the segments an operator's states lie in, each once."""
    return list(dict.fromkeys(piece.ref for state in entry.states for piece in state.pieces))


def _entry(state: SavedState, **content: Any) -> StateEntry:
    return StateEntry(state.name, state.kind, state.dtype, state.shape, **content)
