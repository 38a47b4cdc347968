"""One region in one attempt: from its base and its rows to an acknowledgement or a decline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from holdfast._core import InFlight, OperatorEntry, Owner, RegionEntry, SegmentRef, SegmentStore
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.problem import Problem
from holdfast.regions.graph import (
    SOURCE,
    AlignmentMode,
    ChannelData,
    Progress,
    RegionGraph,
    RegionSnapshot,
    StageSpec,
)
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import AttemptOrder, PipelinePlan
from holdfast.regions.sinks.at_work import StageAtWork
from holdfast.regions.state.registry import FrozenState
from holdfast.regions.state.routing import route_by
from holdfast.regions.state.saved import SavedState
from holdfast.regions.state.segments import (
    SegmentReader,
    read_in_flight,
    read_operator,
    segments_of,
    write_in_flight,
    write_operator,
)
from holdfast.regions.task.answered import Answered
from holdfast.regions.task.feed import RegionFeed
from holdfast.regions.task.instance import (
    Instances,
    OperatorInstance,
    close_instances,
    figures_of,
    fresh_operator,
)
from holdfast.regions.task.shared_states import SharedStates


class RegionRun:
    """Runs the operators of one region, one step at a time.

    `feed` may be filled, and `expire` called, from another thread than `advance`; the caller sees
    to it that no two threads call `advance` of one region at the same time.

    Parameters
    ----------
    plan : PipelinePlan
        The pipeline.
    order : AttemptOrder
        The attempt.
    region : str
        Name of the region.
    base : RegionEntry or None
        Its entry in the latest checkpoint; None for a region that no checkpoint knows.
    store : SegmentStore
        Where segments go.
    stored : SegmentReader
        Where those of `base` are read from.
    cached : Instances, optional
        Operators whose state is exactly that of `base`.
    shared : SharedStates
        What an instance begins with that no checkpoint knows.
    xp : module
        Array module for operators that are opened.

    Attributes
    ----------
    feed : RegionFeed
        Takes the rows of this batch.
    answer : Answered or None
        None as long as the region has not answered.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        order: AttemptOrder,
        region: str,
        base: RegionEntry | None,
        store: SegmentStore,
        *,
        stored: SegmentReader,
        cached: Instances | None,
        shared: SharedStates,
        xp: Any,
    ) -> None:
        self.region = region
        self._shared = shared
        self._plan = plan
        self._order = order
        self._base = base
        self._store = store
        self._stored = stored
        self._owners = RegionOwners(plan.pipeline, region)
        self._xp = xp
        self._instances = cached
        self._graph: RegionGraph | None = None
        timeout_ms = None if order.drain else plan.options.aligned_timeout_ms
        self._step_size = StepSize(plan.options.slice_rows, timeout_ms)
        # What a split holds is read again from its file.
        keeps_rows = plan.splits is None
        self.feed = RegionFeed(stored, self._owners, self._step_size, keeps_rows=keeps_rows)
        self._barrier_sent = False
        self._progressed = False
        self._writer: StageAtWork | None = None
        # What waits in channels and what was not fed yet are bounded apart.
        self._half_of_in_flight_bytes = plan.options.max_in_flight_bytes // 2
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._problem: Problem | None = None
        self._figures = b""
        self.answer: Answered | None = None
        if base is not None and base.finished:
            # R60. The driver ends the query when it learns that there are rows.
            self._failure = f"its data ended in checkpoint {base.origin}"
            self._close_instances()

    # --- work -----------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> bool:
        """Do one unit of work.

        Parameters
        ----------
        now_ms : int
            Milliseconds since the epoch.

        Returns
        -------
        bool
            False when there is nothing to do before more input comes, or the region has answered.
        """
        if self.answer is not None:
            return False
        if self._failure is None:
            try:
                if self.feed.error is not None:
                    raise self.feed.error
                return self._advance(now_ms)
            except BaseException as e:
                # Also of an operator that calls sys.exit(): the thread is not its own.
                self._fail(e)
        if self._failure is None or not self.feed.ended:
            # A replay needs all rows of the batch, also those that come later.
            return False
        self._settle(replace(self._declined(self._failure), problem=self._problem))
        return True

    @property
    def has_all_rows(self) -> bool:
        """Whether no row of this batch is left to be fed: a few steps lead to the answer."""
        return self.feed.ended and not self.feed.waits

    def expire(self, cause: str) -> None:
        """Decline in place of a thread that may be in the middle of `advance` for ever.

        To be called after `feed.end`. What that thread is using is left alone: staged output of
        ended attempts is swept, and operators that are not handed on are never used again.
        """
        if (instances := self._instances) is not None:
            self._figures = figures_of(instances)
        self._settle(self._declined(cause))

    def settled(self) -> Answered:
        """Return the answer of a region that has one."""
        if self.answer is None:
            raise AssertionError(f"region {self.region!r} was delivered without an answer")
        return self.answer

    def instead_of(self, answer: Answered, cause: str) -> Answered:
        """Decline in place of an acknowledgement that cannot be kept, because storage failed.

        What was staged for it is in no checkpoint's metadata, so it is swept later.
        """
        if answer.stage is not None:
            answer.stage.discard()
        if answer.keep is not None:
            close_instances(answer.keep)
        return replace(self._declined(cause), figures=answer.figures)

    # --- details --------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Drop the output and the operators: the region goes on from its base."""
        self._problem = Problem.of(error)
        self._failure = self._problem.text
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
        self._close_instances()

    def _declined(self, cause: str) -> Answered:
        rows = self.feed.source_rows
        if not rows:
            return Answered(None, (), cause=cause, had_rows=False, figures=self._figures)
        if self._order.global_required:
            return Answered(None, (), cause=cause, figures=self._figures)
        try:
            stored = (self._store_in_flight(SOURCE, [ChannelData(SOURCE, tuple(rows), "input")]),)
        except Exception as e:
            # Whatever it is: without an answer, the driver would wait until the timeout.
            cause = f"{cause}; and its rows could not be stored: {e}"
            return Answered(None, (), cause=cause, figures=self._figures)
        return Answered(
            None,
            self._in_flight_segments(stored),
            cause=cause,
            in_flight=stored,
            figures=self._figures,
        )

    def _settle(self, answer: Answered) -> None:
        """Only the first answer counts: `expire` and `advance` may both come to one."""
        with self._lock:
            if self.answer is None:
                self.answer = answer
                return
        if answer.stage is not None:
            answer.stage.discard()

    def _advance(self, now_ms: int) -> bool:
        if self._graph is None:
            self._open()
            return True
        graph = self._graph
        if self._barrier_is_due(now_ms):
            if self._order.end_of_data:
                # In front of the barrier, so that the snapshot holds what was flushed (R61).
                graph.end()
            graph.barrier(
                self._order.attempt, self._order.created_ms, now_ms, aligned=self._order.drain
            )
            self._barrier_sent = True
            return True
        if self.feed.waits and not self._barrier_sent and graph.room():
            graph.feed(self.feed.next_rows())
        begun = time.monotonic()
        worked = graph.step(now_ms) is Progress.WORKED
        if worked:
            self._step_size.took((time.monotonic() - begun) * 1e3)
            self._progressed = True
        self._stage_output(graph)
        snapshot = graph.take_snapshot()
        if snapshot is not None:
            self._acknowledge(snapshot)
            return True
        if not worked and self.feed.ended and not self.feed.waits:
            self._progressed = True  # there is nothing to take in
            return True
        return worked or self.feed.waits

    def _barrier_is_due(self, now_ms: int) -> bool:
        """Behind all rows of the batch, or before if it overtakes; but never before any progress.

        An attempt may begin later than its alignment timeout: a region that only ever stored its
        rows would get nowhere.
        """
        if self._barrier_sent or not self.feed.ended or not self._progressed:
            return False
        return not self.feed.waits or self._overtakes(now_ms)

    def _overtakes(self, now_ms: int) -> bool:
        """Say whether the barrier passes rows that were not fed (R51), if not too many (R58)."""
        timeout = self._plan.options.aligned_timeout_ms
        if timeout is None or self._order.drain:
            return False
        if now_ms - self._order.created_ms < timeout:
            return False
        waiting: int = sum(batch.nbytes for batch in self.feed.all_waiting())
        return waiting <= self._half_of_in_flight_bytes

    def _open(self) -> None:
        """Operators first, then in-flight data in front of new rows (R55)."""
        if self._instances is None:
            self._instances = tuple(
                tuple(self._restored(stage, index) for index in range(stage.parallelism))
                for stage in self._plan.stages
            )
        for stage_instances in self._instances:
            for instance in stage_instances:
                instance.begin(partial(self._lease, instance.name))
                for ended in self._order.ended:
                    instance.tell(ended, self.region)
        options = self._plan.options
        specs = []
        for stage, instances in zip(self._plan.stages, self._instances, strict=True):
            # Without a route, several instances would be wired one to one.
            route = route_by(stage.route_by) if stage.parallelism > 1 else None
            specs.append(StageSpec(stage.name, instances, route))
        graph = RegionGraph(
            specs,
            capacity_batches=options.capacity_batches,
            mode=AlignmentMode(options.aligned_timeout_ms),
            max_in_flight_bytes=self._half_of_in_flight_bytes,
        )
        stored = self._base.in_flight if self._base is not None else ()
        seen: list[ChannelData] = []
        for data in stored:
            if data.channel == SOURCE:
                self.feed.owe([data])
                continue
            for channel in read_in_flight(self._stored, self._owners, data):
                # Rows that no operator has seen are fed like new ones, and may be overtaken again.
                if channel.channel == SOURCE:
                    self.feed.owe(channel.batches)
                else:
                    seen.append(channel)
        graph.restore(seen)
        self._graph = graph

    def _restored(self, stage: Any, index: int) -> OperatorInstance:
        name = stage.instance_name(index)
        known = self._base.operators if self._base is not None else ()
        entry = next((found for found in known if found.name == name), None)
        operator = fresh_operator(stage)
        saved: Iterable[SavedState] = ()
        if entry is not None:
            saved = read_operator(self._stored, self._owners, entry)
        elif not operator.region_safe:
            saved = self._shared.of(stage)
        return OperatorInstance(
            stage,
            operator,
            region=self.region,
            index=index,
            saved=saved,
            xp=self._xp,
        )

    def _lease(self, operator: str, state: str, refs: Sequence[SegmentRef]) -> Sequence[bool]:
        owner = self._owners.state(operator, state)
        return self._store.lease(owner, self._order.attempt, refs)

    def _stage_output(self, graph: RegionGraph) -> None:
        for output in graph.take_output():
            if self._writer is None:
                self._writer = StageAtWork(
                    self._plan.sink, self.region, self._order.attempt, self._plan.output_schema
                )
            self._writer.write(output.batch)

    def _acknowledge(self, snapshot: RegionSnapshot) -> None:
        entries: list[OperatorEntry] = []
        segments: list[tuple[Owner, Sequence[SegmentRef]]] = []
        for plan in self._plan.stages:
            for index in range(plan.parallelism):
                name = plan.instance_name(index)
                states = cast("Sequence[FrozenState]", snapshot.states[plan.name, index])
                entry = write_operator(
                    self._store,
                    self._owners,
                    self._order.attempt,
                    name,
                    states,
                    finished=(plan.name, index) in snapshot.finished,
                )
                entries.append(entry)
                segments.extend(segments_of(self._owners, entry))
        in_flight = self._captured(snapshot)
        segments.extend(self._in_flight_segments(in_flight))
        stage = self._writer
        staged = stage.close() if stage is not None else None
        entry_of_region = RegionEntry(
            self.region,
            origin=self._order.attempt,
            operators=entries,
            in_flight=in_flight,
            staged=() if staged is None else (staged,),
            finished=all(entry.finished for entry in entries),
        )
        # No data moved since the snapshots were taken, so the operators are exactly at them.
        keep, self._instances = self._instances, None
        self._writer = None
        # What it consists of is let go of now, and not with that of all other regions of the task:
        # of ten thousand, these are objects that Python's collector would look through once more.
        self._graph = None
        self._settle(
            Answered(
                entry_of_region,
                segments,
                stage if staged is not None else None,
                had_rows=bool(self.feed.source_rows),
                keep=keep,
                figures=figures_of(keep) if keep is not None else b"",
            )
        )

    def _captured(self, snapshot: RegionSnapshot) -> tuple[InFlight, ...]:
        """Store what the barrier overtook: queued between operators, or not even fed."""
        channels = list(snapshot.in_flight)
        if waiting := self.feed.all_waiting():
            channels.append(ChannelData(SOURCE, tuple(waiting), "input"))
        return (self._store_in_flight("graph", channels),) if channels else ()

    def _store_in_flight(self, channel: str, data: Sequence[ChannelData]) -> InFlight:
        return write_in_flight(self._store, self._owners, self._order.attempt, channel, data)

    def _in_flight_segments(
        self, in_flight: Sequence[InFlight]
    ) -> list[tuple[Owner, Sequence[SegmentRef]]]:
        refs = [data.ref for data in in_flight if data.ref is not None]
        return [(self._owners.in_flight(self._order.attempt), refs)] if refs else []

    def _close_instances(self) -> None:
        if self._instances is not None:
            self._figures = figures_of(self._instances)
            close_instances(self._instances)
        self._instances = None
