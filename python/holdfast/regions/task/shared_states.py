"""Union and broadcast state of a region that no checkpoint knows (R73)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast._core import OperatorEntry, RegionEntry
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.protocol.orders import StagePlan
from holdfast.regions.state.saved import SavedState, StateError, StateKind
from holdfast.regions.state.segments import SegmentReader, read_operator
from holdfast.regions.state.values import JSON

SHARED: Final[frozenset[StateKind]] = frozenset({"union", "broadcast"})
"""Kinds of state that a new region, or a new instance, begins with a copy of."""


class SharedStates:
    """What new regions take over from those that the latest checkpoint has.

    Safe to call from several threads. What an operator's regions have is read once.

    Parameters
    ----------
    store : SegmentReader
        Where segments are read from.
    pipeline : str
        Name of the pipeline.
    regions : mapping of str to RegionEntry
        Those of the checkpoint.
    """

    def __init__(
        self, store: SegmentReader, pipeline: str, regions: Mapping[str, RegionEntry]
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._regions = regions
        self._found: dict[str, Sequence[SavedState]] = {}
        self._lock = threading.Lock()

    def of(self, stage: StagePlan) -> Sequence[SavedState]:
        """Return the states with which every instance of an operator begins in a new region.

        Raises
        ------
        StateError
            If regions do not agree on a broadcast state.
        CorruptSegmentError, FileNotFoundError
            If a segment is damaged or missing.
        """
        with self._lock:
            if stage.name not in self._found:
                self._found[stage.name] = self._read(stage)
            return self._found[stage.name]

    def _read(self, stage: StagePlan) -> Sequence[SavedState]:
        def states(region: str, entry: OperatorEntry) -> Iterable[SavedState]:
            return read_operator(self._store, RegionOwners(self._pipeline, region), entry)

        names = [stage.instance_name(index) for index in range(stage.parallelism)]
        found = shared_states(names, self._regions, states)
        return [joined(of_one, where=f"operator {stage.name!r}") for of_one in found]


def shared_states(
    instances: Collection[str],
    regions: Mapping[str, RegionEntry],
    read: Callable[[str, OperatorEntry], Iterable[SavedState]],
) -> list[list[tuple[str, SavedState]]]:
    """Read the union and broadcast states of an operator in all regions.

    Parameters
    ----------
    instances : collection of str
        Names under which the states of its instances are kept.
    regions : mapping of str to RegionEntry
        The regions.
    read : callable
        Reads the states of an operator's instance in a region.

    Returns
    -------
    list of list of (str, SavedState)
        For each state by its name, region and content, by region and instance.
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
    """Return what the union or broadcast state of a new instance is, from those of all others.

    Parameters
    ----------
    states : sequence of (str, SavedState)
        Region and state; at least one.
    where : str
        The operator, for errors.

    Raises
    ------
    StateError
        If they are of a broadcast state and not all equal.
    """
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
    """Return a list or union state with these items, which are encoded as JSON keeps them."""
    data = json.dumps(items, separators=(",", ":"), allow_nan=False).encode()
    return SavedState(like.name, like.kind, JSON, (len(data),), memoryview(data))


def _content(state: SavedState) -> tuple[str, Any]:
    data = bytes(state.data)
    return state.dtype, json.loads(data) if state.dtype == JSON else data
