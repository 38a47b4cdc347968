"""How long a job may go on without some of its regions, and without a checkpoint (R20 to R24)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator.options import CoordinatorOptions


@dataclass(frozen=True)
class Stuck:
    """A region that kept mandatory global attempts from completing.

    Attributes
    ----------
    attempts : int
        Since the last completed checkpoint.
    since_ms : int
        When the first of them ended.
    """

    attempts: int
    since_ms: int


@dataclass(kw_only=True)
class Limits:
    """Counters of the job.

    What falls back is counted in the metadata, so a restart changes nothing (R23). Attempts that
    end without a checkpoint leave nothing behind that could be read again: a restart forgets them,
    and state drifts no further meanwhile.

    Attributes
    ----------
    consecutive_regional : int
        Regional checkpoints in a row.
    force_global : bool
        The next attempt must be global (R21).
    aborts : int
        Counted aborts in a row (R24).
    stuck : dict of str to Stuck
        Mandatory attempts are retried without being counted as aborts (R21, R25), so that they
        are bounded by the staleness of the regions that fail in them.
    """

    options: CoordinatorOptions
    consecutive_regional: int = 0
    force_global: bool = False
    aborts: int = 0
    stuck: dict[str, Stuck] = field(default_factory=dict)

    @classmethod
    def derived(cls, options: CoordinatorOptions, restored: CheckpointMetadata | None) -> Limits:
        """Derive the counters from restored metadata (R23)."""
        if restored is None:
            return cls(options=options)
        return cls(
            options=options,
            consecutive_regional=restored.consecutive_regional,
            force_global=restored.force_global,
        )

    def after(self, *, regional: bool) -> tuple[int, bool]:
        """Return the counter and the flag that a checkpoint's metadata records (R20, R21)."""
        if not regional:
            return 0, False
        count = self.consecutive_regional + 1
        return count, count >= self.options.max_consecutive_failures

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Take over what a published checkpoint records."""
        self.consecutive_regional = metadata.consecutive_regional
        self.force_global = metadata.force_global
        self.aborts = 0
        self.stuck.clear()

    def forced_attempt_declined(self) -> None:
        """Allow regional mode again; the staleness of regions stays (R10, R21, R22)."""
        self.consecutive_regional = 0
        self.force_global = False

    def mandatory_attempt_aborted(self, regions: Iterable[str], now_ms: int) -> None:
        """Remember who kept a mandatory attempt from completing."""
        for region in regions:
            before = self.stuck.get(region, Stuck(0, now_ms))
            self.stuck[region] = Stuck(before.attempts + 1, before.since_ms)

    def aborted(self) -> bool:
        """Count an abort; True when that is one too many (R24)."""
        self.aborts += 1
        return self.aborts > self.options.tolerable_failed_checkpoints

    def past_bound(self, regions: Mapping[str, RegionEntry], now_ms: int) -> frozenset[str]:
        """Return the regions whose state or rows wait for too long (R22, R58)."""
        bound = self.options.max_region_staleness
        stale = {
            region
            for region, entry in regions.items()
            if entry.failed
            and (
                entry.fallbacks >= bound.checkpoints
                or now_ms - _since(entry, now_ms) >= bound.age_ms
                or entry.in_flight_bytes > self.options.max_in_flight_bytes
            )
        }
        stale.update(
            region
            for region, stuck in self.stuck.items()
            if stuck.attempts >= bound.checkpoints or now_ms - stuck.since_ms >= bound.age_ms
        )
        return frozenset(stale)

    def stale_error(
        self, region: str, entry: RegionEntry | None, cause: str, origin: int, now_ms: int
    ) -> str:
        """Name a region that failed again after its restart, its cause and its age (R22)."""
        stuck = self.stuck.get(region, Stuck(0, now_ms))
        fallbacks = entry.fallbacks if entry is not None else 0
        since = min(stuck.since_ms, _since(entry, now_ms))
        return (
            f"region {region!r} failed again after it was restarted from checkpoint {origin}: "
            f"{cause}. Its state is that of checkpoint {origin}, it fell back {fallbacks} times in "
            f"a row and kept {stuck.attempts} attempts from completing, for "
            f"{(now_ms - since) / 1000:.1f} s by now"
        )


def _since(entry: RegionEntry | None, now_ms: int) -> int:
    if entry is None or entry.stale_since_ms is None:
        return now_ms
    return entry.stale_since_ms
