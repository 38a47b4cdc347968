"""The regions of a checkpoint and of the next one."""

from __future__ import annotations

from collections.abc import Container, Iterator, MutableMapping

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator.idle import is_retired


class Regions(MutableMapping[str, RegionEntry]):
    """Entries of regions that know their changes since the checkpoint before.

    Decisions ask for few regions, so idle ones cost nothing until a caller lists them.

    - `latest`: the checkpoint that has these regions; None: there are none.
    - `changed`: entries that differ from the checkpoint before; all if there is none.
    - `gone`: regions that only the checkpoint before has.
    - `notable`: regions that fell back, have finished, or have pending rows.
    """

    def __init__(self, latest: CheckpointMetadata | None = None) -> None:
        self._latest = latest
        # All entries, once they were listed. Until then, those of `latest` and `changed`.
        self._listed: dict[str, RegionEntry] | None = {} if latest is None else None
        self._len = 0 if latest is None else latest.region_count
        self.changed: dict[str, RegionEntry] = {} if latest is None else latest.fresh
        self.gone: set[str] = set()
        self.notable: dict[str, RegionEntry] = {} if latest is None else latest.notable

    def copy(self) -> Regions:
        """Return a copy that can be changed."""
        copy = Regions()
        copy._latest, copy._len = self._latest, self._len
        copy._listed = None if self._listed is None else dict(self._listed)
        copy.changed, copy.gone = dict(self.changed), set(self.gone)
        copy.notable = dict(self.notable)
        return copy

    def following(self, latest: CheckpointMetadata, retiring: Container[str]) -> Regions:
        """Return the regions of the next checkpoint if nothing happens before it.

        `latest` has these regions, and its output is committed. A region that put out rows when it
        was retired is in this checkpoint only with these rows.
        """
        following = self.copy()
        following._latest, following.changed, following.gone = latest, {}, set()
        for region, entry in self.changed.items():
            if region in retiring and is_retired(entry):
                del following[region]
            elif entry.origin == latest.id:
                following[region] = entry.carried()
        return following

    @property
    def finished(self) -> dict[str, RegionEntry]:
        """Regions whose data has ended."""
        return {region: entry for region, entry in self.notable.items() if entry.finished}

    @property
    def running(self) -> frozenset[str]:
        """Regions whose data has not ended."""
        return frozenset(self._all().keys() - self.finished.keys())

    @property
    def partly_finished(self) -> bool:
        """True if the data of some regions has ended, but not of all."""
        return 0 < len(self.finished) < len(self)

    def __getitem__(self, region: str) -> RegionEntry:
        entry = self.changed.get(region)
        if entry is None and region not in self.gone:
            if self._listed is not None:
                entry = self._listed.get(region)
            elif self._latest is not None:
                entry = self._latest.region(region)
        if entry is None:
            raise KeyError(region)
        return entry

    def __setitem__(self, region: str, entry: RegionEntry) -> None:
        self._len += region not in self
        self.changed[region] = entry
        if self._listed is not None:
            self._listed[region] = entry
        self.gone.discard(region)
        if entry.failed or entry.finished or entry.fallbacks or entry.in_flight_bytes:
            self.notable[region] = entry
        else:
            self.notable.pop(region, None)

    def __delitem__(self, region: str) -> None:
        self._len -= region in self
        self.changed.pop(region, None)
        if self._listed is not None:
            self._listed.pop(region, None)
        self.notable.pop(region, None)
        self.gone.add(region)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return self._len

    def _all(self) -> dict[str, RegionEntry]:
        if self._listed is None:
            listed = {} if self._latest is None else self._latest.regions
            for region in self.gone:
                listed.pop(region, None)
            self._listed = {**listed, **self.changed}
        return self._listed
