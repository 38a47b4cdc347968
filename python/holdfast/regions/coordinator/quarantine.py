"""The regions in quarantine, from one checkpoint to the next (R27, R29)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from holdfast._core import RegionEntry
from holdfast.regions.base.quarantine import in_quarantine


@dataclass(frozen=True)
class Quarantine:
    """Regions in quarantine (R27), and those to `replay`, which the next attempt runs (R29)."""

    regions: frozenset[str] = frozenset()
    replay: frozenset[str] = frozenset()

    @classmethod
    def at_start(cls, entries: Mapping[str, RegionEntry]) -> Quarantine:
        """Return those in a checkpoint. Each start runs them once: the program may be repaired."""
        held = _held(entries, entries)
        return cls(held, held)

    @property
    def resting(self) -> frozenset[str]:
        """Those that the next attempt does not run."""
        return self.regions - self.replay

    def with_replay(self, region: str) -> Quarantine:
        """Let the next attempt run a region, or raise ValueError if it is not in quarantine."""
        if region not in self.regions:
            raise ValueError(f"region {region!r} is not in quarantine")
        return replace(self, replay=self.replay | {region})

    def without_replay(self, regions: Collection[str]) -> Quarantine:
        """Return those after an attempt without a checkpoint, in which these regions failed."""
        return replace(self, replay=self.replay - frozenset(regions))

    def following(self, asked: Collection[str], entries: Mapping[str, RegionEntry]) -> Quarantine:
        """Return those after a checkpoint whose attempt asked some regions."""
        return Quarantine(self.regions - frozenset(asked) | _held(asked, entries))


def _held(regions: Collection[str], entries: Mapping[str, RegionEntry]) -> frozenset[str]:
    return frozenset(
        region
        for region in regions
        if (entry := entries.get(region)) is not None and in_quarantine(entry)
    )
