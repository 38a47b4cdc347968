"""Union and broadcast state of a region that no checkpoint knows (R73)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast._core import CheckpointMetadata, OperatorEntry, RegionEntry
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.saved import SavedState, StateError, StateKind
from holdfast.regions.protocol.orders import StagePlan
from holdfast.regions.state.kinds.encoding import JSON
from holdfast.regions.state.segments import SegmentReader, read_operator

SHARED: Final[frozenset[StateKind]] = frozenset({"union", "broadcast"})
"""Kinds of state of which a new region, or a new instance, begins with a copy."""


@dataclass(frozen=True, eq=False)
class SharedStates:
    """States that new regions copy from the regions of the latest checkpoint, each read once.

    Safe to call from several threads.
    """

    store: SegmentReader
    pipeline: str
    checkpoint: CheckpointMetadata
    _found: dict[str, Sequence[SavedState]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, stage: StagePlan) -> Sequence[SavedState]:
        """Return the states with which every instance of an operator begins in a new region.

        Raises a StateError if regions do not agree on a broadcast state, and a CorruptSegmentError
        or FileNotFoundError if a segment is damaged or missing.
        """
        with self._lock:
            if stage.name not in self._found:
                self._found[stage.name] = self._read(stage)
            return self._found[stage.name]

    def _read(self, stage: StagePlan) -> Sequence[SavedState]:
        def states(region: str, entry: OperatorEntry) -> Iterable[SavedState]:
            return read_operator(self.store, RegionOwners(self.pipeline, region), entry)

        names = [stage.instance_name(index) for index in range(stage.parallelism)]
        found = shared_states(names, self.checkpoint.regions, states)
        return [joined(of_one, where=f"operator {stage.name!r}") for of_one in found]


def shared_states(
    instances: Collection[str],
    regions: Mapping[str, RegionEntry],
    read: Callable[[str, OperatorEntry], Iterable[SavedState]],
) -> list[list[tuple[str, SavedState]]]:
    """Read the union and broadcast states of an operator in all regions.

    `read` reads the states of an operator's instance in a region. Returns by state name
    a list of pairs of region and content, in the order of region and instance.
    """
    by_name: dict[str, list[tuple[str, SavedState]]] = {}
    for region, entry in sorted(regions.items()):
        for operator in entry.operators:
            wanted = [state for state in operator.states if state.kind in SHARED]
            if wanted and operator.name in instances:
                for state in read(region, OperatorEntry(operator.name, wanted)):
                    by_name.setdefault(state.name, []).append((region, state))
    return list(by_name.values())


def joined(states: Sequence[tuple[str, SavedState]], *, where: str) -> SavedState:
    """Return the union or broadcast state of a new instance; StateError if broadcasts differ."""
    region, first = states[0]
    if first.kind == "broadcast":
        for other, state in states:
            if _content(state) != _content(first):
                raise StateError(
                    f"{where}: broadcast state {first.name!r} is not the same in regions "
                    f"{region!r} and {other!r}, so that it cannot be copied to new ones; an "
                    "operator sets it to what does not depend on the rows of a region"
                )
        return first
    return list_state(
        first, [item for _, state in states for item in json.loads(bytes(state.data))]
    )


def list_state(like: SavedState, items: Sequence[Any]) -> SavedState:
    """Return a list or union state with these items, which are in JSON's form."""
    data = json.dumps(items, separators=(",", ":"), allow_nan=False).encode()
    return SavedState(like.name, like.kind, JSON, (len(data),), memoryview(data))


def _content(state: SavedState) -> tuple[str, Any]:
    data = bytes(state.data)
    return state.dtype, json.loads(data) if state.dtype == JSON else data
