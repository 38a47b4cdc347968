"""A region in an attempt, for all of its phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast._core import (
    InFlight,
    Owner,
    RegionEntry,
    SegmentRef,
    SegmentStore,
    TableSession,
)
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.graph import ChannelData
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import AttemptOrder, PipelinePlan
from holdfast.regions.state.segments import SegmentReader, read_in_flight, write_in_flight
from holdfast.regions.task.region.feed import RegionFeed
from holdfast.regions.task.region.output import RegionOutput
from holdfast.regions.task.shared_states import SharedStates
from holdfast.regions.task.suspects import Suspects


@dataclass(frozen=True)
class TaskContext:
    """All that the regions of a task have in common.

    - `begun_ms`: when the task began, by `elapsed_ms`.
    - `stored`: reads the segments of the latest checkpoint.
    - `shared`: states for an instance that no checkpoint knows.
    - `took_part`: regions whose new state the latest checkpoint has.
    - `shares`: regions may put their output together.
    - `clock`: tells seconds, to measure how long an operator works.
    """

    plan: PipelinePlan
    order: AttemptOrder
    store: SegmentStore
    begun_ms: int
    stored: SegmentReader
    shared: SharedStates
    took_part: frozenset[str]
    shares: bool
    xp: Any
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class RegionStore:
    """Reads the segments of a region's checkpoint, and writes the segments of an attempt."""

    task: TaskContext
    owners: RegionOwners

    @property
    def attempt(self) -> int:
        """Id of the attempt."""
        return self.task.order.attempt

    def open_table(
        self,
        operator: str,
        state: str,
        keys: Sequence[str],
        values: Sequence[str],
        commit: str | None,
    ) -> TableSession:
        """Open a table of an operator's instance."""
        owner = self.owners.state(operator, state)
        return self.task.store.open_table(owner, self.attempt, keys=keys, values=values, id=commit)

    def lease(self, operator: str, state: str, refs: Sequence[SegmentRef]) -> Sequence[bool]:
        """Ask for older segments of a state; returns for each whether it may be used."""
        return self.task.store.lease(self.owners.state(operator, state), self.attempt, refs)

    def skipped(self, data: InFlight) -> Sequence[tuple[int, int]]:
        """Return the ranges of rows of a piece that are skipped."""
        return self.task.plan.skipped.get(self.owners.region, {}).get(data.created, ())

    def owed(self, data: InFlight) -> list[pa.RecordBatch]:
        """Read rows that no operator has seen, without skipped ones."""
        skipped = self.skipped(data)
        channels = read_in_flight(self.task.stored, self.owners, data, skipped=skipped)
        return [batch for channel in channels for batch in channel.batches]

    def write(self, channel: str, data: Sequence[ChannelData]) -> InFlight:
        """Store new pending rows of the region."""
        return write_in_flight(self.task.store, self.owners, self.attempt, channel, data)

    def segments_of(
        self, in_flight: Iterable[InFlight]
    ) -> list[tuple[Owner, Sequence[SegmentRef]]]:
        """Return the segments of rows that this attempt stored."""
        refs = [data.ref for data in in_flight if data.ref is not None]
        return [(self.owners.in_flight(self.attempt), refs)] if refs else []


class Region:
    """A region in an attempt; without `base`, its latest entry, no checkpoint knows it."""

    def __init__(self, task: TaskContext, name: str, base: RegionEntry | None) -> None:
        plan, order = task.plan, task.order
        self.task = task
        self.name = name
        self.base = base
        self.store = RegionStore(task, RegionOwners(plan.pipeline, name))
        timeout_ms = None if order.drain else plan.options.aligned_timeout_ms
        self.feed = RegionFeed(
            self.store.owed,
            StepSize(plan.options.slice_rows, timeout_ms),
            # Rows of a split are read again from its file.
            keeps_rows=plan.splits is None,
            suspects=Suspects(plan.options.bad_row_runs) if plan.finds_bad_rows else None,
        )
        self.outputs: dict[str, RegionOutput] = {}

    @property
    def retiring(self) -> bool:
        """True if the region puts out its last rows (R66)."""
        return self.name in self.task.order.retire

    @property
    def half_of_in_flight_bytes(self) -> int:
        """Rows in channels and rows that were not fed yet have a bound each."""
        return self.task.plan.options.max_in_flight_bytes // 2

    def write(self, side: str, rows: pa.RecordBatch) -> None:
        """Give rows to a side output, or to the main one, whose name is empty."""
        if side not in self.outputs:
            plan, attempt = self.task.plan, self.task.order.attempt
            output = next(output for output in plan.outputs if output.name == side)
            # The driver may continue without the answer only of a region that retires.
            shares = self.task.shares and not self.retiring and output.sink.shared_bytes > 0
            gather_bytes = plan.options.share_rows_bytes if shares else 0
            self.outputs[side] = RegionOutput(output, self.name, attempt, gather_bytes)
        self.outputs[side].write(rows)

    def discard_output(self) -> None:
        """Drop all output."""
        outputs, self.outputs = self.outputs, {}
        for output in outputs.values():
            output.discard()
