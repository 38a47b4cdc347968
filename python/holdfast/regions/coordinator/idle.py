"""The time that regions go without rows, as checkpoints record it (R66)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast._core import CheckpointMetadata, RegionEntry

#: Properties of a checkpoint that record the time: for regions to retire, and for watermarks.
IDLE_PROPERTY: Final = "idle"
WATERMARK_PROPERTY: Final = "watermark_idle"

#: Version of the record.
VERSION: Final = 1

#: Checkpoints without rows of a region before it is retired, at least, however late they are.
LEAST_CHECKPOINTS: Final = 8

#: Regions that are retired with one checkpoint, so that no batch takes long for that.
RETIRED_AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class IdleTime:
    """Time that counts for idle regions, and when some earlier checkpoints were made in it.

    A region that took no part since some checkpoint has been idle since then at least. So a few
    checkpoints are remembered instead of regions.

    - `ms`: milliseconds that count, up to an attempt.
    - `marks`: checkpoints with their time, both rising.
    - `rested`: regions that ran without rows, with the last checkpoint of their rows.
    """

    retire_ms: int
    ms: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    rested: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def at(
        cls,
        latest: CheckpointMetadata | None,
        now_ms: int,
        retire_ms: int,
        of: str = IDLE_PROPERTY,
    ) -> IdleTime:
        """Advance time to an attempt.

        A late checkpoint may follow a stop of the pipeline or an outage of its source, with rows
        waiting for all regions. So a step counts for at most a share of the time. A clock that was
        set back counts for nothing.
        """
        known = None if latest is None else latest.properties.get(of)
        if latest is None or known is None:
            return cls(retire_ms)
        record = json.loads(known)
        if record["version"] > VERSION:
            return cls(retire_ms)
        marks = tuple((id, ms) for id, ms in record["marks"])
        idle = cls(retire_ms, record["ms"], marks, record.get("rested", {}))
        step_ms = min(max(now_ms - latest.created_ms, 0), idle.longest_step_ms)
        return replace(idle, ms=idle.ms + step_ms)

    @property
    def longest_step_ms(self) -> int:
        """The most that counts from one checkpoint to the next."""
        return -(-self.retire_ms // LEAST_CHECKPOINTS)

    @property
    def idle_since(self) -> int:
        """The newest checkpoint since which a region is idle for long enough, else 0."""
        return max((id for id, ms in self.marks if self.ms - ms >= self.retire_ms), default=0)

    def last_rows(self, region: str, entry: RegionEntry) -> int:
        """Return the checkpoint since which a region has had no rows."""
        return self.rested.get(region, entry.origin)

    def idle_ms(self, origin: int) -> int:
        """Return the least idle time, in ms, of a region that took no part since `origin`."""
        return self.ms - next((ms for id, ms in self.marks if id >= origin), self.ms)

    def record(self, checkpoint: int, of: str = IDLE_PROPERTY) -> dict[str, str]:
        """Return the property for a checkpoint made now."""
        marks = [(id, ms) for id, ms in self.marks if id >= self.idle_since]
        if not marks or self.ms - marks[-1][1] >= self.longest_step_ms:
            marks.append((checkpoint, self.ms))
        content: dict[str, object] = {"version": VERSION, "ms": self.ms, "marks": marks}
        if self.rested:
            content["rested"] = self.rested
        return {of: json.dumps(content)}


def is_retired(entry: RegionEntry) -> bool:
    """Return whether a region has no state, no mark and no rows: no checkpoint needs its entry."""
    return not (entry.operators or entry.finished or entry.fallbacks or entry.in_flight_bytes)
