"""What the operators of a pipeline did since its start: for people and for monitoring."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast._core import CheckpointMetadata, OperatorEntry, RegionEntry
from holdfast.regions.coordinator import HistoryRecord
from holdfast.regions.driver import metric_sums
from holdfast.regions.driver.metric_sums import GaugeMetrics, MetricSums, Sums

#: Answers that are put together.
_MAX_PENDING: Final = 4096

#: What a level of a name in Spark's metrics system is made of.
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)

Number = int | float


@dataclass(frozen=True, kw_only=True)
class OperatorMetrics:
    """What instances of one operator did.

    Attributes
    ----------
    rows_in, rows_out : int
        Rows that they took in and put out.
    busy_ms : float
        Milliseconds in their code, summed over instances that work at the same time.
    counters : mapping of str to int
        Their own counters, see ``ctx.metrics``.
    gauges : mapping of str to GaugeMetrics
        Their own gauges.
    """

    rows_in: int = 0
    rows_out: int = 0
    busy_ms: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, GaugeMetrics] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RegionMetrics:
    """What the pipeline did for one region since its start.

    Attributes
    ----------
    operators : mapping of str to OperatorMetrics
        By the name of the operator. Gauges are those of its last answer.
    failures : int
        Attempts in which it failed.
    state_bytes : mapping of str to int
        Bytes of its state in the latest completed checkpoint, by the name of the operator.
    in_flight_rows : int
        Rows that this checkpoint stores for it and that its state does not reflect.
    """

    operators: Mapping[str, OperatorMetrics]
    failures: int
    state_bytes: Mapping[str, int]
    in_flight_rows: int


@dataclass(frozen=True, kw_only=True)
class PipelineMetrics:
    """What a pipeline did since this start of it; a restart begins at 0.

    All of it counts work that was done, of attempts that were aborted and of regions that failed,
    too: rows that come again count again. What a worker counted that was lost before it answered is
    not in it.

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
        What was done in that attempt alone.
    regions : mapping of str to RegionMetrics
        At most 10,000 regions: those that answered first, then others of the latest checkpoint.
    unnamed : int
        How many further regions that checkpoint has: they are in the sums alone.
    state_bytes : mapping of str to int
        Bytes of state in the latest completed checkpoint, by operator, over all regions.
    in_flight_rows : int
        Rows that this checkpoint stores and that no state reflects yet.
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


class MetricsLog:
    """Adds up the figures that regions answer with.

    One thread adds; any other may ask.

    Parameters
    ----------
    operators : sequence of str
        Their names, in the order of the pipeline.
    """

    def __init__(self, operators: Sequence[str]) -> None:
        self._operators = tuple(operators)
        self._levels = _levels(self._operators)
        self._lock = threading.Lock()
        self._pending: list[tuple[str, bytes]] = []
        self._sums = MetricSums(len(self._operators))
        self._last = self._sums.under_way
        self._last_attempt: int | None = None
        self._failed: dict[str, int] = {}
        self._failures = 0
        self._attempts = {"global": 0, "regional": 0, "aborted": 0}
        self._attempt_ms = 0
        self._in_flight_rows = 0

    def add(self, region: str, figures: bytes) -> None:
        """Take what a region answered with in the attempt that is under way; nothing if empty."""
        if not figures:
            return
        with self._lock:
            self._pending.append((region, figures))
            if len(self._pending) >= _MAX_PENDING:
                self._take_pending()

    def ended(self, record: HistoryRecord) -> None:
        """Take note of the end of the attempt that was under way."""
        with self._lock:
            self._take_pending()
            self._last = self._sums.end_attempt()
            self._last_attempt = record.id
            self._attempts[record.outcome] += 1
            self._attempt_ms = max(0, record.ended_ms - record.started_ms)
            self._failures += len(record.failed) + record.unnamed
            for failed in record.failed:
                if self._sums.know(failed.region):
                    self._failed[failed.region] = self._failed.get(failed.region, 0) + 1
            if record.outcome != "aborted":
                self._in_flight_rows = record.in_flight_rows

    def sums(self) -> dict[str, Number]:
        """Return the sums over all regions, by names for Spark's metrics system."""
        with self._lock:
            found: dict[str, Number] = {
                "checkpointsGlobal": self._attempts["global"],
                "checkpointsRegional": self._attempts["regional"],
                "attemptsAborted": self._attempts["aborted"],
                "attemptMs": self._attempt_ms,
                "failures": self._failures,
                "inFlightRows": self._in_flight_rows,
            }
            operators = self._named(self._sums.total).values()
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

    def snapshot(self, latest: CheckpointMetadata) -> PipelineMetrics:
        """Return all that is known, with sizes from the latest completed checkpoint."""
        entries = latest.regions
        sizes = {region: _state_bytes(entry) for region, entry in entries.items()}
        rows = {region: _in_flight_rows(entry) for region, entry in entries.items()}
        state_bytes = dict.fromkeys(self._operators, 0)
        for size in sizes.values():
            for name, count in size.items():
                state_bytes[name] = state_bytes.get(name, 0) + count
        with self._lock:
            self._take_pending()
            known = set(self._sums.regions)
            named = list(dict.fromkeys([*self._sums.regions, *sorted(entries)]))
            return PipelineMetrics(
                checkpoint=latest.id,
                attempts=dict(self._attempts),
                failures=self._failures,
                operators=self._named(self._sums.so_far()),
                last_attempt=self._last_attempt,
                last_operators=self._named(self._last),
                regions={
                    region: RegionMetrics(
                        operators=self._named(
                            self._sums.of_region(region) if region in known else None
                        ),
                        failures=self._failed.get(region, 0),
                        state_bytes=sizes.get(region, {}),
                        in_flight_rows=rows.get(region, 0),
                    )
                    for region in named[: metric_sums.MAX_REGIONS]
                },
                unnamed=len(named[metric_sums.MAX_REGIONS :]),
                state_bytes=state_bytes,
                in_flight_rows=sum(rows.values()),
            )

    # --- under the lock ---------------------------------------------------------------------------

    def _take_pending(self) -> None:
        pending, self._pending = self._pending, []
        self._sums.add(pending)

    def _named(self, sums: Sums | None) -> dict[str, OperatorMetrics]:
        if sums is None:
            return {name: OperatorMetrics() for name in self._operators}
        found = {}
        for number, name in enumerate(self._operators):
            rows_in, rows_out, busy_ns = self._sums.integers_of(sums, number)
            found[name] = OperatorMetrics(
                rows_in=rows_in,
                rows_out=rows_out,
                busy_ms=busy_ns / 1e6,
                counters=self._sums.counters_of(sums, number),
                gauges=self._sums.gauges_of(sums, number),
            )
        return found


def level(name: str) -> str:
    """Return a name as one level of a name in Spark's metrics system."""
    return _OTHER.sub("_", name)


def _levels(operators: Sequence[str]) -> list[str]:
    """Return the operators' levels, each another."""
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
        found[name] = found.get(name, 0) + _size(operator)
    return found


def _size(operator: OperatorEntry) -> int:
    return sum(
        sum(piece.length for piece in state.pieces) + len(state.inline or b"")
        for state in operator.states
    )


def _in_flight_rows(entry: RegionEntry) -> int:
    if not entry.in_flight_bytes:
        return 0
    return sum(stored.rows for stored in entry.in_flight)
