"""Figures of a pipeline's operators since its start: for people and for monitoring."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.base.sparing_log import SparingLog
from holdfast.regions.checkpoint.read import in_flight_rows
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.protocol.figures import OperatorFigures, decode

LOG: Final = logging.getLogger(__name__)

#: Bound on the metrics of one operator's own, over all regions.
MAX_NAMES: Final = 64

#: Bound on the regions with figures of their own.
MAX_REGIONS: Final = 10_000

#: Characters that no level of a name in Spark's metrics system has.
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class GaugeMetrics:
    """Minimum, maximum and mean of the gauges of one name, over the instances with a value."""

    min: float
    max: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class OperatorMetrics:
    """Figures of the instances of one operator.

    Attributes
    ----------
    rows_in, rows_out : int
        Rows that they took in and put out.
    busy_ms : float
        Milliseconds in their code, summed over instances that work at the same time.
    counters, gauges : mapping of str to int or GaugeMetrics
        Their own figures, see ``ctx.metrics``.
    """

    rows_in: int = 0
    rows_out: int = 0
    busy_ms: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, GaugeMetrics] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RegionMetrics:
    """Figures of one region since the start of the pipeline.

    Attributes
    ----------
    operators : mapping of str to OperatorMetrics
        By the name of the operator. Gauges are from its last answer.
    failures : int
        Attempts in which it failed.
    state_bytes : mapping of str to int
        Bytes of its state in the latest completed checkpoint, by the name of the operator.
    in_flight_rows : int
        Its pending rows in this checkpoint.
    """

    operators: Mapping[str, OperatorMetrics]
    failures: int
    state_bytes: Mapping[str, int]
    in_flight_rows: int


@dataclass(frozen=True, kw_only=True)
class PipelineMetrics:
    """Figures of a pipeline since this start of it; a restart begins at 0.

    They count all work, also in aborted attempts and failed regions: replayed rows count again.
    Counts of a worker that was lost before it answered are missing.

    Attributes
    ----------
    checkpoint : int
        The latest completed checkpoint.
    attempts : mapping of str to int
        Attempts that have ended: ``global``, ``regional`` and ``aborted``.
    failures : int
        Times that a region failed in an attempt.
    operators : mapping of str to OperatorMetrics
        By name, in the order of the pipeline. Gauges are over the regions that answered in the last
        attempt in which one answered.
    last_attempt : int or None
        The attempt that ended last; None before the first.
    last_operators : mapping of str to OperatorMetrics
        Figures of only that attempt.
    regions : mapping of str to RegionMetrics
        At most 10,000 regions: those that answered first, then others of the latest checkpoint.
    unnamed : int
        Number of further regions in that checkpoint, counted only in the sums.
    state_bytes : mapping of str to int
        Bytes of state in the latest completed checkpoint, by operator, over all regions.
    in_flight_rows : int
        All pending rows in this checkpoint.
    quarantined_regions, quarantined_bytes : int
        Regions in quarantine in this checkpoint, and their pending bytes.
    skipped_splits : int
        Splits that ``FileSplits(on_bad_split="skip")`` skips now.
    """

    checkpoint: int
    attempts: Mapping[str, int]
    failures: int
    operators: Mapping[str, OperatorMetrics]
    last_attempt: int | None
    last_operators: Mapping[str, OperatorMetrics]
    regions: Mapping[str, RegionMetrics]
    unnamed: int
    state_bytes: Mapping[str, int]
    in_flight_rows: int
    quarantined_regions: int = 0
    quarantined_bytes: int = 0
    skipped_splits: int = 0


class MetricsLog:
    """Adds up the figures in regions' answers. One thread adds; any other may ask."""

    def __init__(self, operators: Sequence[str]) -> None:
        self._operators = tuple(operators)
        self._levels = _levels(self._operators)
        self._lock = threading.Lock()
        self._warnings = SparingLog(LOG)
        # By operator: names of its counters and gauges, and its figures in all ended attempts, in
        # the one under way, and in the last one.
        self._names: list[tuple[set[str], set[str]]] = [(set(), set()) for _ in self._operators]
        self._total = self._nothing()
        self._under_way = self._nothing()
        self._last = self._nothing()
        self._of_regions: dict[str, list[OperatorFigures]] = {}
        self._last_record: HistoryRecord | None = None
        self._failed: dict[str, int] = {}
        self._failures = 0
        self._attempts = {"global": 0, "regional": 0, "aborted": 0}
        self._in_flight_rows = 0
        self._quarantined = (0, 0)

    def add(self, region: str, figures: bytes) -> None:
        """Add the figures of a region's answer, if any; ValueError if they do not fit."""
        if not figures:
            return
        found = decode(figures)
        if len(found) != len(self._operators):
            raise ValueError(
                f"expected figures of {len(self._operators)} operators, found {len(found)}"
            )
        with self._lock:
            self._leave_out_names(found)
            for sums, one in zip(self._under_way, found, strict=True):
                sums.add(one)
            if self._know(region):
                _add_later(self._of_regions[region], found)

    def ended(self, record: HistoryRecord, held: Collection[RegionEntry] = ()) -> None:
        """Note the end of the attempt that was under way, and the regions in quarantine then."""
        with self._lock:
            self._last, self._under_way = self._under_way, self._nothing()
            _add_later(self._total, self._last)
            self._last_record = record
            self._attempts[record.outcome] += 1
            self._failures += len(record.failed) + record.unnamed
            for failed in record.failed:
                if self._know(failed.region):
                    self._failed[failed.region] = self._failed.get(failed.region, 0) + 1
            if record.outcome != "aborted":
                self._in_flight_rows = record.in_flight_rows
            self._quarantined = len(held), sum(entry.in_flight_bytes for entry in held)

    def sums(self) -> dict[str, float]:
        """Return the sums over all regions, by names for Spark's metrics system."""
        with self._lock:
            found: dict[str, float] = {
                "checkpointsGlobal": self._attempts["global"],
                "checkpointsRegional": self._attempts["regional"],
                "attemptsAborted": self._attempts["aborted"],
                "attemptMs": 0 if self._last_record is None else max(0, self._last_record.ms),
                "failures": self._failures,
                "inFlightRows": self._in_flight_rows,
                "quarantinedRegions": self._quarantined[0],
                "quarantinedBytes": self._quarantined[1],
            }
            operators = self._named(self._total).values()
        for level, total in zip(self._levels, operators, strict=True):
            found[f"{level}.rowsIn"] = total.rows_in
            found[f"{level}.rowsOut"] = total.rows_out
            found[f"{level}.busyMs"] = int(total.busy_ms)
            for name, value in total.counters.items():
                found[f"{level}.counter.{name}"] = value
            for name, gauge in total.gauges.items():
                found[f"{level}.gauge.{name}.min"] = gauge.min
                found[f"{level}.gauge.{name}.max"] = gauge.max
                found[f"{level}.gauge.{name}.mean"] = gauge.mean
        return found

    def snapshot(self, latest: CheckpointMetadata, *, skipped_splits: int = 0) -> PipelineMetrics:
        """Return all figures, with sizes from the latest completed checkpoint."""
        entries = latest.regions
        sizes = {region: _state_bytes(entry) for region, entry in entries.items()}
        rows = {region: in_flight_rows(entry) for region, entry in entries.items()}
        held = [entry for entry in entries.values() if in_quarantine(entry)]
        state_bytes = dict.fromkeys(self._operators, 0)
        for size in sizes.values():
            for name, count in size.items():
                state_bytes[name] = state_bytes.get(name, 0) + count
        with self._lock:
            named = list(dict.fromkeys([*self._of_regions, *sorted(entries)]))
            so_far = self._nothing()
            _add_later(so_far, self._total)
            _add_later(so_far, self._under_way)
            return PipelineMetrics(
                checkpoint=latest.id,
                attempts=dict(self._attempts),
                failures=self._failures,
                operators=self._named(so_far),
                last_attempt=None if self._last_record is None else self._last_record.id,
                last_operators=self._named(self._last),
                regions={
                    region: RegionMetrics(
                        operators=self._named(self._of_regions.get(region)),
                        failures=self._failed.get(region, 0),
                        state_bytes=sizes.get(region, {}),
                        in_flight_rows=rows.get(region, 0),
                    )
                    for region in named[:MAX_REGIONS]
                },
                unnamed=len(named[MAX_REGIONS:]),
                state_bytes=state_bytes,
                in_flight_rows=sum(rows.values()),
                quarantined_regions=len(held),
                quarantined_bytes=sum(entry.in_flight_bytes for entry in held),
                skipped_splits=skipped_splits,
            )

    # --- under the lock ---------------------------------------------------------------------------

    def _know(self, region: str) -> bool:
        """Return whether a region has its own figures; it gets some if there is room."""
        if region not in self._of_regions and len(self._of_regions) < MAX_REGIONS:
            self._of_regions[region] = self._nothing()
        return region in self._of_regions

    def _leave_out_names(self, found: Sequence[OperatorFigures]) -> None:
        """Drop counters and gauges of new names if an operator has the most allowed."""
        for (counters, gauges), one in zip(self._names, found, strict=True):
            for known, metrics in ((counters, one.counters), (gauges, one.gauges)):
                for name in sorted(metrics.keys() - known) if metrics else ():
                    if len(counters) + len(gauges) < MAX_NAMES:
                        known.add(name)
                        continue
                    del metrics[name]
                    self._warnings.warn(
                        "names",
                        f"the metric {name!r} and others are left out: the instances of an "
                        f"operator may have {MAX_NAMES} names together, and what differs from "
                        "region to region belongs into rows",
                    )

    def _nothing(self) -> list[OperatorFigures]:
        return [OperatorFigures() for _ in self._operators]

    def _named(self, sums: Sequence[OperatorFigures] | None) -> dict[str, OperatorMetrics]:
        return {
            name: OperatorMetrics(
                rows_in=one.rows_in,
                rows_out=one.rows_out,
                busy_ms=one.busy_ns / 1e6,
                counters=dict(one.counters),
                gauges={
                    gauge: GaugeMetrics(min=at.min, max=at.max, mean=at.sum / at.instances)
                    for gauge, at in one.gauges.items()
                },
            )
            for name, one in zip(self._operators, sums or self._nothing(), strict=True)
        }


def _add_later(sums: Sequence[OperatorFigures], later: Sequence[OperatorFigures]) -> None:
    for one, other in zip(sums, later, strict=True):
        one.add_later(other)


def level(name: str) -> str:
    """Return a name as one level of a name in Spark's metrics system."""
    return _OTHER.sub("_", name)


def _levels(operators: Sequence[str]) -> list[str]:
    """Return a level for each operator; no two are equal."""
    found: list[str] = []
    for name in operators:
        wanted = one = f"operator.{level(name)}"
        number = 2
        while one in found:
            one, number = f"{wanted}_{number}", number + 1
        found.append(one)
    return found


def _state_bytes(entry: RegionEntry) -> dict[str, int]:
    found: dict[str, int] = {}
    for operator in entry.operators:
        # Parallel instances are "name#0", "name#1".
        name = operator.name.partition("#")[0]
        inline = sum(len(state.inline or b"") for state in operator.states)
        stored = sum(
            piece.ref.length if state.kind == "table" else piece.length
            for state in operator.states
            for piece in state.pieces
        )
        found[name] = found.get(name, 0) + inline + stored
    return found
