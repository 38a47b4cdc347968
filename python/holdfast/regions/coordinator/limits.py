"""Bounds on a job without some of its regions, and without a checkpoint (R20 to R24)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator.options import CoordinatorOptions

#: Pauses between attempts: the first, and the longest. Each is twice the one before (R24).
FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 10_000


@dataclass(kw_only=True)
class Limits:
    """Counters of the job.

    Fallbacks are counted in the metadata, so a restart changes nothing (R23). Attempts that end
    without a checkpoint are forgotten by a restart: they do not make state older.

    - `consecutive_regional`: regional checkpoints in a row.
    - `force_global`: the next attempt must be global (R21).
    - `aborts`: counted aborts in a row (R24).
    - `aborts_since_global`: all aborts since the last global checkpoint; their reason may outlast a
      regional one.
    - `repeated`: aborted attempts since the last checkpoint that had to succeed. They are repeated
      for some time and are no `aborts` (R25).
    - `repeated_since_ms`: when the first of them ended.
    - `last_try`: repeated for too long: regions that fail go into quarantine (R27).
    """

    options: CoordinatorOptions
    consecutive_regional: int = 0
    force_global: bool = False
    aborts: int = 0
    aborts_since_global: int = 0
    repeated: int = 0
    repeated_since_ms: int = 0
    last_try: bool = False

    def after(self, *, regional: bool) -> tuple[int, bool]:
        """Return the counter and the flag that a checkpoint's metadata records (R20, R21)."""
        if not regional:
            return 0, False
        count = self.consecutive_regional + 1
        return count, count >= self.options.max_consecutive_failures

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Take over the counters of a published or restored checkpoint (R23)."""
        self.consecutive_regional = metadata.consecutive_regional
        self.force_global = metadata.force_global
        self.aborts = 0
        self.repeated = 0
        self.last_try = False
        if metadata.is_global:
            self.aborts_since_global = 0

    def forced_attempt_declined(self) -> None:
        """Allow regional mode again; regions stay stale (R10, R21, R22)."""
        self.consecutive_regional = 0
        self.force_global = False

    def must_be_repeated(self, now_ms: int) -> bool:
        """Count an abort of an attempt that must succeed; False when that took too long (R25)."""
        if not self.repeated:
            self.repeated_since_ms = now_ms
        self.repeated += 1
        return now_ms - self.repeated_since_ms < self.options.global_timeout_ms

    def pause_ms(self, now_ms: int) -> int:
        """Count an abort; return the time until the next attempt (R24)."""
        doublings = min(self.aborts_since_global, LONGEST_PAUSE_MS.bit_length())
        self.aborts_since_global += 1
        pause_ms = min(FIRST_PAUSE_MS << doublings, LONGEST_PAUSE_MS)
        if not self.repeated:
            return pause_ms
        # The last attempt begins when the time is over.
        left_ms = self.repeated_since_ms + self.options.global_timeout_ms - now_ms
        return max(FIRST_PAUSE_MS, min(pause_ms, left_ms))

    def aborted(self) -> bool:
        """Count an abort; True if that is one too many (R24)."""
        self.aborts += 1
        return self.aborts > self.options.tolerable_failed_checkpoints

    def past_bound(self, regions: Mapping[str, RegionEntry], now_ms: int) -> frozenset[str]:
        """Return the given regions whose state or rows wait for too long (R22, R58)."""
        bound = self.options.max_region_staleness
        return frozenset(
            region
            for region, entry in regions.items()
            if entry.failed
            and (
                entry.fallbacks >= bound.checkpoints
                or now_ms - _since(entry, now_ms) >= bound.age_ms
                or entry.in_flight_bytes > self.options.max_in_flight_bytes
            )
        )

    def stale_error(
        self, region: str, entry: RegionEntry | None, cause: str, origin: int, now_ms: int
    ) -> str:
        """Name a region that failed again after its restart, its cause and its age (R22)."""
        fallbacks = entry.fallbacks if entry is not None else 0
        return (
            f"region {region!r} failed again after it was restarted from checkpoint {origin}: "
            f"{cause}. Its state is that of checkpoint {origin}, it fell back {fallbacks} times in "
            f"a row, for {(now_ms - _since(entry, now_ms)) / 1000:.1f} s by now"
        )


def _since(entry: RegionEntry | None, now_ms: int) -> int:
    if entry is None or entry.stale_since_ms is None:
        return now_ms
    return entry.stale_since_ms
