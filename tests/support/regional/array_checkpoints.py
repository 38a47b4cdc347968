"""Checkpoints of one operator's states with a real snapshot manager, and a model of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from holdfast import Owner, SegmentRef, SnapshotManager
from holdfast._core import OperatorEntry
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.state.arrays.chunks import Layout
from holdfast.regions.state.kinds.kind import StateOptions
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import read_operator, segments_of, write_operator

OWNERS = RegionOwners("pipeline", "region")
OWNER = OWNERS.state("operator", "state")
SMALL = Layout(chunk_bytes=64, segment_bytes=256)

Outcome = Literal["completed", "fell back", "aborted", "abort not told"]
Refusal = Callable[[int], bool]
"""By the number of the requested reference: True if its lease is refused."""


def refs_of(entry: OperatorEntry) -> list[SegmentRef]:
    """Segments of an operator."""
    return [ref for _, refs in segments_of(OWNERS, entry) for ref in refs]


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint: its metadata, and the array."""

    id: int
    origin: int
    entry: OperatorEntry
    content: npt.NDArray[Any]


class ArrayCheckpoints:
    """One array state through attempts, failures and restarts.

    After a failure or a restart, a new registry is made from the latest checkpoint, as in region
    tasks.
    """

    def __init__(
        self,
        folder: Path,
        *,
        shape: tuple[int, ...],
        dtype: str = "uint8",
        layout: Layout = SMALL,
        xp: Any = np,
        max_file_bytes: int = 4096,
        retained: int = 2,
        exact: bool = False,
        disturbed: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._folder = folder
        self._shape, self._dtype, self._layout, self._xp = shape, dtype, layout, xp
        self._max_file_bytes = max_file_bytes
        self._retained_count = retained
        self._exact = exact
        #: The disturbance of the registry, if any.
        self.disturbed = disturbed
        self._attempt = 0
        self._asked = 0
        self.retained: list[Checkpoint] = []
        self.appended_bytes = 0
        self._counting = Lock()
        self.refused: Refusal = lambda number: False
        self.manager = self._opened()
        self._open_registry()

    def attempt(self, outcome: Outcome = "completed") -> OperatorEntry:
        """Take a snapshot, write it, and let the attempt end."""
        self._attempt += 1
        number = self._attempt
        self.manager.started(number)
        content = self.host().copy()
        with self._disturbed():
            frozen = self.registry.freeze(self._lease)
        self._scribble()  # the snapshot does not depend on later changes
        with self._disturbed():
            entry = write_operator(self, OWNERS, number, "operator", frozen)
        del frozen
        self.restore_content(content)
        self.manager.persist_segments(number, OWNER, refs_of(entry))
        if outcome == "completed":
            self._complete(Checkpoint(number, number, entry, content))
            return entry
        base = self.retained[-1] if self.retained else None
        if outcome == "fell back" and base is not None:
            self._complete(Checkpoint(number, base.origin, base.entry, base.content))
        elif outcome != "abort not told":
            self.manager.aborted(number, self._view())
        self._open_registry()
        return entry

    def restart(self) -> None:
        """Begin again with a new manager."""
        self.manager.close()
        self.manager = self._opened()
        self.manager.restore(
            {
                kept.id: [(OWNER, kept.origin, ref) for ref in refs_of(kept.entry)]
                for kept in self.retained
            }
        )
        self.manager.sweep()
        self._open_registry()

    def stored(self, checkpoint: Checkpoint) -> npt.NDArray[Any]:
        """Read the array of a retained checkpoint."""
        (saved,) = read_operator(self.manager, OWNERS, checkpoint.entry)
        return np.frombuffer(saved.data, saved.dtype).reshape(saved.shape)

    def host(self) -> npt.NDArray[Any]:
        """The operator's array, in host memory."""
        return np.asarray(self.array if self._xp is np else self._xp.asnumpy(self.array))

    def restore_content(self, content: npt.NDArray[Any]) -> None:
        """Set the operator's array."""
        self.array[...] = self._xp.asarray(content)

    # --- the store of `write_operator` ----------------------------------------------------------

    def append(self, owner: Owner, checkpoint: int, data: Any, **more: Any) -> SegmentRef:
        with self._counting:  # several threads write segments of an array
            self.appended_bytes += memoryview(data).nbytes
        return self.manager.append(owner, checkpoint, data, **more)

    def read(self, ref: SegmentRef, owner: Owner) -> bytes:
        return self.manager.read(ref, owner)

    def persist_segments(self, checkpoint: int, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        self.manager.persist_segments(checkpoint, owner, refs)

    def lease(self, owner: Owner, checkpoint: int, refs: Sequence[SegmentRef]) -> list[bool]:
        return self.manager.lease(owner, checkpoint, refs)

    def release(self, owner: Owner, refs: Sequence[SegmentRef]) -> None:
        self.manager.release(owner, refs)

    # --- details --------------------------------------------------------------------------------

    def _disturbed(self) -> AbstractContextManager[None]:
        return nullcontext() if self.disturbed is None else self.disturbed()

    def _lease(self, state: str, refs: Sequence[SegmentRef]) -> list[bool]:
        asked = [ref for ref in refs if not self._is_refused()]
        granted = dict(zip(asked, self.manager.lease(OWNER, self._attempt, asked), strict=True))
        return [granted.get(ref, False) for ref in refs]

    def _is_refused(self) -> bool:
        self._asked += 1
        return self.refused(self._asked)

    def _scribble(self) -> None:
        self.array[...] = 77

    def _complete(self, checkpoint: Checkpoint) -> None:
        self.retained = [*self.retained, checkpoint][-self._retained_count :]
        if checkpoint.id == checkpoint.origin:
            self.manager.completed(checkpoint.id, self._view())
        else:
            fallbacks = {OWNER: checkpoint.origin}
            self.manager.partially_completed(checkpoint.id, fallbacks, self._view())

    def _view(self) -> dict[int, dict[Owner, int]]:
        return {
            kept.id: {} if kept.origin == kept.id else {OWNER: kept.origin}
            for kept in self.retained
        }

    def _open_registry(self) -> None:
        saved = read_operator(self, OWNERS, self.retained[-1].entry) if self.retained else ()
        options = StateOptions(layout=self._layout)
        self.registry = StateRegistry(self._xp, saved, owner="test", options=options)
        with self._disturbed() if saved else nullcontext():
            self.array = self.registry.array(
                "state", shape=self._shape, dtype=self._dtype, exact=self._exact
            )

    def _opened(self) -> SnapshotManager:
        return SnapshotManager(
            self._folder, max_file_bytes=self._max_file_bytes, compression="none"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.manager.close()
