"""The retained checkpoints, and the view of them for managers of segments (R44, R70)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast._core import CheckpointMetadata, Owner
from holdfast.regions.base.owners import IN_FLIGHT_OPERATOR
from holdfast.regions.coordinator.options import CoordinatorOptions
from holdfast.regions.coordinator.regions import Regions


@dataclass
class Retention:
    """The retained checkpoints, oldest first, and the view of them that managers get.

    - `given_up`: checkpoints newer than the restored one, until dropped: the user went back.
    - `untold`: weight of checkpoints of which managers were not told, because a message is large.
    """

    pipeline: str
    options: CoordinatorOptions
    given_up: tuple[int, ...] = ()
    untold: int = 0
    _kept: dict[int, CheckpointMetadata] = field(default_factory=dict)
    _moved: dict[int, Mapping[Owner, int]] = field(default_factory=dict)

    def restore(self, restored: int, retained: Mapping[int, CheckpointMetadata]) -> None:
        """Take in the checkpoints whose metadata was found, by id."""
        for id, metadata in sorted(retained.items()):
            if id <= restored:
                self.add(metadata)
            else:
                self.given_up += (id,)

    def add(self, metadata: CheckpointMetadata) -> None:
        """Take in a checkpoint that is newer than all others."""
        self._kept[metadata.id] = metadata

    def subsumed(self) -> tuple[int, ...]:
        """Return the ids of checkpoints to delete now, oldest first, which stay until `let_go`.

        Savepoints stay for ever, and the latest checkpoint because at least one does.
        """
        ordinary = [id for id, metadata in self._kept.items() if metadata.kind != "savepoint"]
        too_old = tuple(ordinary[: -self.options.num_retained])
        return too_old if len(too_old) >= self.options.dropped_together else ()

    def let_go(self, ids: Iterable[int]) -> None:
        """Drop checkpoints whose metadata is deleted: no restart finds them."""
        for id in ids:
            self._kept.pop(id, None)
            self._moved.pop(id, None)

    @property
    def checkpoints(self) -> tuple[CheckpointMetadata, ...]:
        """The retained checkpoints, oldest first."""
        return tuple(self._kept.values())

    def must_tell(self, latest: int, entries: Regions) -> bool:
        """Count the writes of the latest checkpoint; True if managers are to be told (R43)."""
        bounds = self.options.bounds
        fresh = [entry for entry in entries.changed.values() if entry.origin == latest]
        resting = len(entries) - len(fresh)
        if resting <= bounds.resting_told:
            return True
        written = sum(ref.length for entry in fresh for _, _, ref in entry.refs())
        self.untold += len(fresh) * bounds.resting_for_an_answer
        self.untold += written // bounds.bytes_for_a_resting
        return self.untold >= resting

    def view(self) -> dict[int, Mapping[Owner, int]]:
        """Return the owners of every retained checkpoint whose origin is not its id."""
        for id, metadata in self._kept.items():
            if id not in self._moved:
                usual = _usual_stores(metadata)
                self._moved[id] = dict(metadata.at_rest(self.pipeline, usual))
        return {id: self._moved[id] for id in self._kept}


def _usual_stores(metadata: CheckpointMetadata) -> list[tuple[str, str]]:
    """Return the operators and state names of one region that took its snapshot.

    A failed region may have written state with these names that its base does not know. That state
    is dead at once only if managers learn its owners.
    """
    fresh = next(iter(metadata.fresh.values()), None)
    refs = () if fresh is None else fresh.refs()
    stores = {(operator, store) for operator, store, _ in refs if operator != IN_FLIGHT_OPERATOR}
    return sorted(stores)
