"""The regions of a checkpoint, and the way from one to the next."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, MutableMapping

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator.idle import is_retired


class Regions(MutableMapping[str, RegionEntry]):
    """Entries of regions that know how they differ from those of the checkpoint before.

    Decisions ask for few regions, so idle ones cost nothing.

    Attributes
    ----------
    changed : dict of str to RegionEntry
        Entries that differ from the checkpoint before; all if there is none.
    gone : set of str
        Regions that only the checkpoint before has.
    notable : dict of str to RegionEntry
        Regions that fell back, have finished, or owe rows.
    """

    def __init__(
        self,
        entries: Mapping[str, RegionEntry] | None = None,
        *,
        changed: Mapping[str, RegionEntry] | None = None,
        gone: set[str] | None = None,
        notable: Mapping[str, RegionEntry] | None = None,
    ) -> None:
        self._entries = dict(entries or {})
        self.changed = dict(changed or {})
        self.gone = set(gone or ())
        self.notable = dict(notable or {})

    @classmethod
    def of(cls, metadata: CheckpointMetadata) -> Regions:
        """Return the regions of a checkpoint; of those that differ, the ones it has a state of."""
        return cls(metadata.regions, changed=metadata.fresh, notable=metadata.notable)

    def copy(self) -> Regions:
        """Return a copy that can be changed."""
        return Regions(self._entries, changed=self.changed, gone=self.gone, notable=self.notable)

    def following(self, checkpoint: int, retiring: Container[str]) -> Regions:
        """Return the regions of the next checkpoint if nothing happens until then.

        The output of this one, `checkpoint`, is committed then. A region that put out rows when it
        was retired is in this checkpoint with these rows alone.
        """
        following = Regions(self._entries, notable=self.notable)
        for region, entry in self.changed.items():
            if region in retiring and is_retired(entry):
                del following[region]
            elif entry.origin == checkpoint:
                following[region] = entry.carried()
        return following

    @property
    def finished(self) -> dict[str, RegionEntry]:
        """Regions whose data has ended."""
        return {region: entry for region, entry in self.notable.items() if entry.finished}

    @property
    def running(self) -> frozenset[str]:
        """Regions whose data has not ended."""
        return frozenset(self._entries.keys() - self.finished.keys())

    @property
    def partly_finished(self) -> bool:
        """True if the data of some regions has ended, and that of others has not."""
        return 0 < len(self.finished) < len(self)

    def __getitem__(self, region: str) -> RegionEntry:
        return self._entries[region]

    def __setitem__(self, region: str, entry: RegionEntry) -> None:
        self._entries[region] = self.changed[region] = entry
        self.gone.discard(region)
        if entry.failed or entry.finished or entry.fallbacks or entry.in_flight_bytes:
            self.notable[region] = entry
        else:
            self.notable.pop(region, None)

    def __delitem__(self, region: str) -> None:
        del self._entries[region]
        self.changed.pop(region, None)
        self.notable.pop(region, None)
        self.gone.add(region)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
