"""The checkpoints that stay, and the view of them for managers of segments (R44, R70)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast._core import CheckpointMetadata, Owner, RegionEntry
from holdfast.regions.base.owners import IN_FLIGHT_OPERATOR, RegionOwners

#: An operator and a name of state in it.
Store = tuple[str, str]


@dataclass(frozen=True)
class _Owners:
    """Owners of one region's state, kept as long as its origin stays."""

    origin: int
    stores: frozenset[Store]
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class _View:
    """The regions of a checkpoint, and the owners whose origin is not its id.

    Attributes
    ----------
    of_region : mapping of str to tuple of Owner
        These owners by region.
    owing : frozenset of str
        Regions with in-flight data.
    """

    entries: Mapping[str, RegionEntry]
    moved: Mapping[Owner, int]
    of_region: Mapping[str, tuple[Owner, ...]]
    owing: frozenset[str]


@dataclass
class Retention:
    """The retained checkpoints, oldest first, and the view of them that managers get.

    Parameters
    ----------
    num_retained : int
        How many checkpoints stay that are no savepoints.
    dropped_together : int
        How many older ones go at once; fewer stay until there are as many.
    """

    pipeline: str
    num_retained: int
    dropped_together: int
    _kept: dict[int, CheckpointMetadata] = field(default_factory=dict)
    _moved: dict[int, Mapping[Owner, int]] = field(default_factory=dict)
    _owners: dict[str, _Owners] = field(default_factory=dict)
    _newest: _View = field(default_factory=lambda: _View({}, {}, {}, frozenset()))

    def add(self, metadata: CheckpointMetadata, entries: Mapping[str, RegionEntry]) -> None:
        """Take in a checkpoint that is newer than all others."""
        self._kept[metadata.id] = metadata
        self._moved[metadata.id] = self._owners_moved(metadata.id, entries)

    def subsumed(self) -> tuple[int, ...]:
        """Return the ids of checkpoints that are to go now, oldest first. They stay until `let_go`.

        Savepoints stay for ever. The latest checkpoint stays because at least one does.
        """
        ordinary = [id for id, metadata in self._kept.items() if metadata.kind != "savepoint"]
        too_old = tuple(ordinary[: -self.num_retained])
        return too_old if len(too_old) >= self.dropped_together else ()

    def let_go(self, ids: Iterable[int]) -> None:
        """Let go of checkpoints whose metadata is gone: no restart finds them any more."""
        for id in ids:
            self._kept.pop(id, None)
            self._moved.pop(id, None)

    @property
    def checkpoints(self) -> tuple[CheckpointMetadata, ...]:
        """The retained checkpoints, oldest first."""
        return tuple(self._kept.values())

    @property
    def owners_at_rest(self) -> int:
        """Number of owners whose origin is not the newest checkpoint."""
        return len(self._newest.moved)

    def view(self) -> dict[int, Mapping[Owner, int]]:
        """Return the owners of every retained checkpoint whose origin is not its id."""
        return dict(self._moved)

    def _owners_moved(self, id: int, entries: Mapping[str, RegionEntry]) -> dict[Owner, int]:
        """Return the owners whose state or rows have another origin than the checkpoint's id.

        Regions with the entry of the checkpoint before cost one comparison.
        """
        before = self._newest
        changed = [
            region
            for region, entry in entries.items()
            # In-flight data of the checkpoint before is older now.
            if before.entries.get(region) is not entry or region in before.owing
        ]
        moved, of_region = dict(before.moved), dict(before.of_region)
        for region in (*changed, *(before.entries.keys() - entries.keys())):
            for owner in of_region.pop(region, ()):
                del moved[owner]
        usual = self._usual_stores(id, [entries[region] for region in changed])
        for region in changed:
            if found := self._moved_in(id, region, entries[region], usual):
                of_region[region] = tuple(found)
                moved |= found
        owing = frozenset(region for region in changed if entries[region].in_flight_bytes)
        self._newest = _View(entries, moved, of_region, owing)
        return moved

    def _moved_in(
        self, id: int, region: str, entry: RegionEntry, usual: frozenset[Store]
    ) -> dict[Owner, int]:
        moved: dict[Owner, int] = {}
        if entry.origin != id:
            stores = usual if entry.fallbacks else frozenset()
            for owner in self._owners_of(region, entry, stores):
                moved[owner] = entry.origin
        if entry.in_flight_bytes:
            for stored in entry.in_flight:
                if stored.created != id:
                    owner = RegionOwners(self.pipeline, region).in_flight(stored.created)
                    moved[owner] = stored.created
        return moved

    def _usual_stores(self, id: int, changed: Iterable[RegionEntry]) -> frozenset[Store]:
        """Return the state names of one region that took its snapshot for the checkpoint.

        A failed region may have written state under these names, too, which its base does not know.
        That state is dead at once only if the managers get to know its owners.
        """
        fresh = next((entry for entry in changed if entry.origin == id), None)
        return frozenset() if fresh is None else _stores(fresh)

    def _owners_of(
        self, region: str, entry: RegionEntry, usual: frozenset[Store]
    ) -> tuple[Owner, ...]:
        known = self._owners.get(region)
        if known is not None and known.origin == entry.origin and usual <= known.stores:
            return known.owners
        stores = _stores(entry) | usual
        owners = tuple(
            Owner(self.pipeline, operator, region, store) for operator, store in sorted(stores)
        )
        self._owners[region] = _Owners(entry.origin, stores, owners)
        return owners


def _stores(entry: RegionEntry) -> frozenset[Store]:
    return frozenset(
        (operator, store) for operator, store, _ in entry.refs() if operator != IN_FLIGHT_OPERATOR
    )
