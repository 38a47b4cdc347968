"""The answers of a region: an acknowledgement, a decline, and rows stored in quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import cast

from holdfast._core import InFlight, OperatorEntry, Owner, RegionEntry, SegmentRef, Staged
from holdfast.regions.base.problem import Cause
from holdfast.regions.base.quarantine import quarantined
from holdfast.regions.coordinator import Acked, Declined
from holdfast.regions.graph import SOURCE, ChannelData, RegionSnapshot
from holdfast.regions.state.kinds.kind import FrozenState
from holdfast.regions.state.segments import segments_of, write_operator
from holdfast.regions.task.instance import Instances, close_instances, figures_of
from holdfast.regions.task.region.output import RegionOutput
from holdfast.regions.task.region.quarantined_rows import with_rows
from holdfast.regions.task.region.region import Region


@dataclass(frozen=True)
class Answered:
    """An acknowledgement or a decline, not durable yet.

    `segments` and `outputs` must be durable before the driver receives the answer. The next attempt
    may continue with the operators in `keep`. See `protocol.figures` for `figures`.
    """

    event: Acked | Declined
    segments: Sequence[tuple[Owner, Sequence[SegmentRef]]] = ()
    outputs: Sequence[RegionOutput] = ()
    keep: Instances | None = None
    figures: bytes = b""

    @property
    def shares(self) -> bool:
        """True if rows wait for rows of other regions."""
        return any(output.rows for output in self.outputs)

    def with_files(self, files: Sequence[Staged]) -> Answered:
        """Return an acknowledgement with output that was staged since."""
        acked = self.event
        if not isinstance(acked, Acked):
            raise AssertionError("a decline has no output")
        entry = acked.entry
        named = RegionEntry(
            entry.region,
            origin=entry.origin,
            operators=entry.operators,
            in_flight=entry.in_flight,
            staged=(*entry.staged, *files),
            finished=entry.finished,
        )
        return replace(self, event=replace(acked, entry=named))


class Work(Enum):
    """The result of a step that leads to no other phase."""

    DONE = "one unit of work was done"
    WAITS = "there is nothing to do before more input"
    AGAIN = "the region begins again, without the rows that fail"


class Phase:
    """A phase of a region; this base class is after the answer. `instances`: open operators."""

    instances: Instances | None = None

    def step(self, now_ms: int) -> Phase | Answered | Work:
        """Do one unit of work; `now_ms` is from `elapsed_ms`."""
        return Work.WAITS

    def figures(self) -> bytes:
        """Return the figures of the operators since the last call; any thread may ask."""
        instances = self.instances
        return figures_of(instances) if instances is not None else b""

    def close(self) -> bytes:
        """Close the operators, and return their figures."""
        figures, instances = self.figures(), self.instances
        self.instances = None
        if instances is not None:
            close_instances(instances)
        return figures


def acknowledged(region: Region, instances: Instances, snapshot: RegionSnapshot) -> Answered:
    """Write the snapshot, close the output. No data moved since, so operators are exactly at it."""
    plan, store, attempt = region.task.plan, region.store, region.task.order.attempt
    entries: list[OperatorEntry] = []
    segments: list[tuple[Owner, Sequence[SegmentRef]]] = []
    # A retired region leaves only the rows that it put out (R66).
    for stage in () if region.retiring else plan.stages:
        for index in range(stage.parallelism):
            entry = write_operator(
                region.task.store,
                store.owners,
                attempt,
                stage.instance_name(index),
                cast("Sequence[FrozenState]", snapshot.states[stage.name, index]),
                finished=(stage.name, index) in snapshot.finished,
            )
            entries.append(entry)
            segments.extend(segments_of(store.owners, entry))
    in_flight = _captured(region, snapshot)
    segments.extend(store.segments_of(in_flight))
    closed = {output: output.close() for output in region.outputs.values()}
    region_entry = RegionEntry(
        region.name,
        origin=attempt,
        operators=entries,
        in_flight=in_flight,
        staged=[staged for staged in closed.values() if staged is not None],
        finished=bool(entries) and all(entry.finished for entry in entries),
    )
    events = [
        (instance.stage.name, event)
        for instance in chain.from_iterable(instances)
        for event in instance.sent
    ]
    region.outputs = {}
    figures = figures_of(instances)
    if region.retiring:
        close_instances(instances)
    return Answered(
        Acked(
            attempt=attempt,
            region=region.name,
            entry=region_entry,
            events=[*region.feed.sent, *events],
        ),
        segments,
        [output for output, staged in closed.items() if staged is not None or output.rows],
        keep=None if region.retiring else instances,
        figures=figures,
    )


def _captured(region: Region, snapshot: RegionSnapshot) -> tuple[InFlight, ...]:
    """Store rows that the barrier overtook: between operators, or not even fed."""
    channels = list(snapshot.in_flight)
    if waiting := region.feed.all_waiting():
        channels.append(ChannelData(SOURCE, tuple(waiting), "input"))
    return (region.store.write("graph", channels),) if channels else ()


def declined(region: Region, cause: Cause, figures: bytes) -> Answered:
    """Let a region decline, and store its rows for their replay."""
    order, rows, text = region.task.order, region.feed.source_rows, cause.text
    stored: tuple[InFlight, ...] = ()
    stores = not order.global_required or region.name in order.excused
    if rows and stores:
        try:
            channel = ChannelData(SOURCE, tuple(rows), "input")
            stored = (region.store.write(SOURCE, [channel]),)
        except Exception as e:
            # Without an answer, the driver would wait until the timeout.
            text = f"{text}; and its rows could not be stored: {e}"
    event = Declined(
        attempt=order.attempt,
        region=region.name,
        cause=text,
        in_flight=stored,
        had_rows=bool(rows),
        problem=cause.problem,
    )
    return Answered(event, region.store.segments_of(stored), figures=figures)


class Failed(Phase):
    """The region declines, once it has all rows of the batch: a replay needs them."""

    def __init__(self, region: Region, cause: Cause, figures: bytes = b"") -> None:
        self._region = region
        self._cause = cause
        self._figures = figures

    def step(self, now_ms: int) -> Answered | Work:
        """See `Phase`."""
        if not self._region.feed.ended:
            return Work.WAITS
        return declined(self._region, self._cause, self._figures)

    def figures(self) -> bytes:
        """See `Phase`."""
        return self._figures


class Quarantined(Phase):
    """The region stores its rows after its pending ones, and runs nothing (R27)."""

    def __init__(self, region: Region, base: RegionEntry) -> None:
        self._region = region
        self._base = base

    def step(self, now_ms: int) -> Answered | Work:
        """See `Phase`."""
        region = self._region
        if not region.feed.ended:
            return Work.WAITS
        owed = with_rows(
            region.store,
            self._base.in_flight,
            region.feed.source_rows,
            pieces=region.task.plan.options.quarantine_pieces,
        )
        acked = Acked(
            attempt=region.task.order.attempt,
            region=region.name,
            entry=quarantined(self._base, owed),
        )
        return Answered(acked, region.store.segments_of(owed[-1:]))
