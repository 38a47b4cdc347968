"""Settings of checkpoints, and the parts of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import Final

from holdfast._checks import not_allowed, require_int
from holdfast.regions.base.owners import IN_FLIGHT_OPERATOR

#: In-flight data of a region: minutes if it is slow or fails, and little to read at a restart.
MAX_IN_FLIGHT_BYTES: Final = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Bounds on a region's older state (R22). The bound that is reached first counts.

    - `checkpoints`: fallbacks in a row, at least 1: no checkpoint has a region with more of them.
    - `age_ms`: milliseconds since its first fallback in a row, at least 1.
    """

    checkpoints: int = 10
    age_ms: int = 600_000

    def __post_init__(self) -> None:
        require_int("max_region_staleness.checkpoints", self.checkpoints, at_least=1)
        require_int("max_region_staleness.age_ms", self.age_ms, at_least=1)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Sizes from which on the coordinator saves work. No user sets them.

    - `woken_at_once`: bound on regions that run without rows in one attempt, for short batches.
    - `resting_told`: managers are told of every checkpoint unless more regions have an older state.
      A message names all of these, so then it waits until enough was written to be worth it (R43).
    - `resting_for_an_answer`: each answer since the last message makes up for so many of these
      regions.
    - `bytes_for_a_resting`: so does each piece of so many bytes in an answer, for one region.
    """

    woken_at_once: int = 1_000
    resting_told: int = 2_000
    resting_for_an_answer: int = 10
    bytes_for_a_resting: int = 1_024


@dataclass(frozen=True, kw_only=True)
class CoordinatorOptions:
    """Settings of the `CheckpointCoordinator`; the defaults are those of the semantics (J).

    `PipelineOptions` explains the settings that users give.

    - `max_failure_ratio`: above 0 and at most 1. Regions of one lost task count once (R12).
    - `max_consecutive_failures`: regional checkpoints in a row after which one must be global
      (R21). 0: never regional, and the first decline aborts (R8).
    - `max_in_flight_bytes`: in-flight data above which a failing region counts as stale (R58).
    - `quarantine_after`: fallbacks of a region in a row, at least 1, after which it is in
      quarantine (R27). None: a region that is stuck ends the query.
    - `max_quarantined_bytes`: pending bytes of all regions in quarantine, above which the query
      ends (R28).
    - `num_retained`: newest checkpoints that are kept, at least 1, without savepoints (R70).
    - `dropped_together`: older checkpoints deleted at once, at least 1; fewer are kept (R70).
    - `tolerable_failed_checkpoints`: aborted attempts in a row that do not fail the query (R24).
    - `global_timeout_ms`: time for which attempts that must succeed are repeated (R24, R25).
    - `restart_finished`: rows of a region whose data has ended begin it again (R64).
    - `retire_idle_ms`: time without rows after which a region is retired (R66); None: never.
    - `history_length`: ended attempts in `CheckpointCoordinator.history`, at least 1.
    """

    max_failure_ratio: float = 0.3
    max_consecutive_failures: int = 2
    max_region_staleness: Staleness = field(default_factory=Staleness)
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES
    quarantine_after: int | None = None
    max_quarantined_bytes: int = 1 << 30
    num_retained: int = 3
    dropped_together: int = 1
    tolerable_failed_checkpoints: int = 0
    global_timeout_ms: int = 120_000
    restart_finished: bool = False
    retire_idle_ms: int | None = None
    history_length: int = 100
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        ratio = self.max_failure_ratio
        # NaN compares with nothing, so it is refused.
        if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < ratio <= 1:
            raise not_allowed(
                "max_failure_ratio",
                ratio,
                "a number above 0 and at most 1 (max_consecutive_failures=0 lets no region fail)",
            )
        require_int("max_consecutive_failures", self.max_consecutive_failures, at_least=0)
        require_int("max_in_flight_bytes", self.max_in_flight_bytes, at_least=0)
        if self.quarantine_after is not None:
            require_int("quarantine_after", self.quarantine_after, at_least=1)
        require_int("max_quarantined_bytes", self.max_quarantined_bytes, at_least=0)
        require_int("num_retained", self.num_retained, at_least=1)
        require_int("dropped_together", self.dropped_together, at_least=1)
        require_int("tolerable_failed_checkpoints", self.tolerable_failed_checkpoints, at_least=0)
        require_int("global_timeout_ms", self.global_timeout_ms, at_least=0)
        require_int("history_length", self.history_length, at_least=1)

    @property
    def may_fall_back(self) -> bool:
        """True if a checkpoint may be regional (R8, R23)."""
        return self.max_consecutive_failures > 0

    @property
    def quarantines(self) -> bool:
        """True if regions that are stuck go into quarantine (R27)."""
        return self.may_fall_back and self.quarantine_after is not None

    def failures_allowed(self, regions: int) -> int:
        """Return how many of the active ``regions`` may fail in one checkpoint (R12)."""
        # The typed ratio: 0.29 of 100 regions are 29, but 28 as floats.
        return max(1, math.floor(Fraction(str(self.max_failure_ratio)) * regions))


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The parts of a pipeline.

    - `pipeline`: its name, the first part of every owner.
    - `operators`: names of its operators, in order.
    - `coordinators`: operators with an `OperatorCoordinator`, and whether it supports fallback
      (R15).
    - `fingerprint`: of operators, their order, and the region function. It differs from a restored
      checkpoint's when the layout changed (R14). Regions come from the data, so their number is no
      layout.
    - `watermark_idle_ms`: time without rows after which a region's watermark moves (R69); None:
      never.

    Raises a ValueError if names repeat, are reserved, or name no operator.
    """

    pipeline: str
    operators: tuple[str, ...]
    coordinators: Mapping[str, bool]
    fingerprint: bytes
    watermark_idle_ms: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.operators)) != len(self.operators):
            raise not_allowed("operators", self.operators, "names that do not repeat")
        if IN_FLIGHT_OPERATOR in self.operators:
            raise not_allowed(
                "operators", self.operators, f"no operator called {IN_FLIGHT_OPERATOR!r}"
            )
        if unknown := sorted(set(self.coordinators) - set(self.operators)):
            raise not_allowed("coordinators", unknown, f"names among {', '.join(self.operators)}")
