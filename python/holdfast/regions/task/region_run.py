"""One region in one attempt: from its base and its rows to an acknowledgement or a decline."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

import pyarrow as pa

from holdfast._core import (
    InFlight,
    OperatorEntry,
    Owner,
    RegionEntry,
    SegmentRef,
    SegmentStore,
    TableSession,
)
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.problem import Problem
from holdfast.regions.base.quarantine import quarantined
from holdfast.regions.base.saved import SavedState
from holdfast.regions.base.turns import work_for
from holdfast.regions.coordinator import Acked, Declined
from holdfast.regions.graph import (
    SOURCE,
    ChannelData,
    Progress,
    RegionGraph,
    RegionSnapshot,
    StageSpec,
)
from holdfast.regions.graph.step_size import StepSize
from holdfast.regions.protocol.orders import AttemptOrder, OutputPlan, PipelinePlan
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.state.registry import FrozenState
from holdfast.regions.state.routing import route_by
from holdfast.regions.state.segments import (
    SegmentReader,
    read_in_flight,
    read_operator,
    segments_of,
    write_in_flight,
    write_operator,
)
from holdfast.regions.state.tables.times import AttemptTimes
from holdfast.regions.task.answered import Answered
from holdfast.regions.task.feed import RegionFeed
from holdfast.regions.task.instance import (
    Instances,
    OperatorInstance,
    close_instances,
    figures_of,
)
from holdfast.regions.task.output_at_work import OutputAtWork
from holdfast.regions.task.quarantined_rows import with_rows
from holdfast.regions.task.shared_states import SharedStates
from holdfast.regions.task.side_rows import SideRows
from holdfast.regions.task.suspects import Suspects
from holdfast.regions.task.threads import RegionThread
from holdfast.regions.task.watermark import WATERMARK


class RegionRun:
    """Runs the operators of one region, one step at a time.

    `feed` may be filled, and `expire` and `instead_of` called, from another thread. `advance` and
    `abandon` are called on the thread of the region alone.

    Parameters
    ----------
    base : RegionEntry or None
        Its entry in the latest checkpoint; None for a region that no checkpoint knows.
    begun_ms : int
        When its task began, by `elapsed_ms`.
    stored : SegmentReader
        Reads the segments of `base`.
    cached : Instances, optional
        Operators whose state is exactly that of `base`.
    shared : SharedStates
        States for an instance that no checkpoint knows.
    took_part : frozenset of str
        Regions whose new state the latest checkpoint has.
    shares : bool
        Its output may be in files with that of other regions.

    Attributes
    ----------
    feed : RegionFeed
        Takes the rows of this batch.
    answer : Answered or None
        None as long as the region has not answered.
    sent : list of (str, bytes)
        Events of the source's reader to coordinators, each with the name of its operator.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        order: AttemptOrder,
        region: str,
        base: RegionEntry | None,
        store: SegmentStore,
        *,
        begun_ms: int,
        stored: SegmentReader,
        thread: RegionThread,
        cached: Instances | None,
        shared: SharedStates,
        took_part: frozenset[str],
        shares: bool,
        xp: Any,
    ) -> None:
        self.region = region
        self._took_part = took_part
        self._shared = shared
        self._plan = plan
        self._order = order
        self._begun_ms = begun_ms
        self._base = base
        self._store = store
        self._stored = stored
        self._owners = RegionOwners(plan.pipeline, region)
        self._xp = xp
        self.thread = thread
        self._instances = cached
        self._graph: RegionGraph | None = None
        timeout_ms = None if order.drain else plan.options.aligned_timeout_ms
        self._step_size = StepSize(plan.options.slice_rows, timeout_ms)
        # Rows of a split are read again from its file.
        keeps_rows = plan.splits is None
        self._skipped = plan.skipped.get(region, {})
        self.feed = RegionFeed(
            stored,
            self._owners,
            self._step_size,
            keeps_rows=keeps_rows,
            skipped=self._skipped,
        )
        # Operators that have not heard of the time in this attempt.
        self._untold: deque[str] = deque()
        self._retiring = region in order.retire
        # The driver may do without the answers of these regions alone.
        self._shares = shares and not self._retiring
        self._barrier_sent = False
        self._progressed = False
        self._suspects = Suspects() if plan.finds_bad_rows else None
        self._begins_anew = False
        # An operator is at work, or the last one to be so has failed.
        self._at_work = False
        self._outputs: dict[str, OutputAtWork] = {}
        # Rows in channels and rows that were not fed yet have a bound each.
        self._half_of_in_flight_bytes = plan.options.max_in_flight_bytes // 2
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._problem: Problem | None = None
        self._figures = b""
        self.answer: Answered | None = None
        self.sent: list[tuple[str, bytes]] = []
        if base is not None and base.finished:
            if cached is not None:
                thread.do(partial(close_instances, cached))
                self._instances = None
            if plan.options.restart_finished:
                # It begins without state, and with the rows that it could not process since (R64).
                self._base = RegionEntry(region, origin=base.origin, in_flight=base.in_flight)
            else:
                # R60. The driver ends the query when it learns that there are rows.
                self._failure = f"its data ended in checkpoint {base.origin}"

    # --- work -----------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> bool:
        """Do one unit of work; False if there is none before more input, or none at all."""
        if self.answer is not None:
            return False
        work_for(self._plan.run)
        if self._failure is None:
            try:
                if self.feed.error is not None:
                    raise self.feed.error
                if self._base is not None and self.region in self._order.quarantined:
                    return self._store_in_quarantine(self._base)
                if self._begins_anew and not self._begin_anew():
                    return False
                return self._advance(now_ms)
            except BaseException as e:
                if self._suspected(e):
                    return True
                # Also SystemExit of an operator: the thread is not its own.
                self._fail(e)
        if self._failure is None or not self.feed.ended:
            # A replay needs all rows of the batch, also those that come later.
            return False
        self._settle(self._declined(self._failure, self._problem))
        return True

    @property
    def has_all_rows(self) -> bool:
        """True if all rows of this batch were fed: a few steps lead to the answer."""
        return self.feed.ended and not self.feed.waits

    def expire(self, cause: str) -> None:
        """Decline in place of a thread that may be in the middle of `advance` for ever.

        To be called after `feed.end`. Operators and output that the thread is using are left alone:
        staged output of ended attempts is swept, and such operators are never used again.
        """
        if (instances := self._instances) is not None:
            self._figures = figures_of(instances)
        if self._failure is None and (rows := self.feed.under_way()):
            cause = f"{cause} (with {rows})"
        self._settle(self._declined(cause))

    def settled(self) -> Answered:
        """Return the answer of a region that has one."""
        if self.answer is None:
            raise AssertionError(f"region {self.region!r} was delivered without an answer")
        return self.answer

    def instead_of(self, answer: Answered, cause: str, problem: Problem | None = None) -> Answered:
        """Decline in place of an acknowledgement that cannot be kept, because storage failed.

        Its staged output is in no checkpoint's metadata, so it is swept later.
        """
        for output in answer.outputs:
            output.discard()
        if answer.keep is not None:
            self.thread.do(partial(close_instances, answer.keep))
        return replace(self._declined(cause, problem), figures=answer.figures)

    def abandon(self) -> None:
        """Close operators and output: the attempt ended before the region answered."""
        self._let_go()
        if self.answer is not None and self.answer.keep is not None:
            close_instances(self.answer.keep)

    # --- details --------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Drop the output and the operators: the region goes on from its base."""
        # The error names a split that cannot be read; rows of others are not to blame.
        rows = "" if error is self.feed.error else self.feed.under_way()
        self._problem = Problem.of(error, rows=rows)
        self._failure = self._problem.text + (f" (with {rows})" if rows else "")
        self._let_go()

    def _suspected(self, error: BaseException) -> bool:
        """Let the region begin anew without the rows that fail; False if it has to fail."""
        suspects, (begin, end) = self._suspects, self.feed.at_work
        is_of_rows = self._at_work and begin < end and not self._barrier_sent
        if suspects is None or not is_of_rows or not isinstance(error, Exception):
            return False
        if not suspects.failed(begin, end, Problem.of(error).text):
            return False
        self._let_go()
        self._graph, self._barrier_sent, self._progressed = None, False, False
        self._at_work, self._begins_anew = False, True
        return True

    def _begin_anew(self) -> bool:
        """Give all rows once more, if all of them are here; until then, False."""
        if not self.feed.ended or self._suspects is None:
            return False
        self.feed.begin_anew(self._suspects)
        self._begins_anew = False
        return True

    def _reject(self, row: pa.RecordBatch, why: str) -> None:
        """Give a row that fails to the side output for such rows, as an operator would."""
        self._suspects = None  # an error here is none of the row
        sides = SideRows.of(self._plan)
        sides.open = True
        sides.reject(row, why)
        outputs = {output.name: output for output in self._plan.outputs}
        for side, rejected in sides.take():
            self._write(outputs[side], rejected)

    def _declined(self, cause: str, problem: Problem | None = None) -> Answered:
        rows = self.feed.source_rows
        stored: tuple[InFlight, ...] = ()
        stores = not self._order.global_required or self.region in self._order.excused
        if rows and stores:
            try:
                channel = ChannelData(SOURCE, tuple(rows), "input")
                stored = (self._store_in_flight(SOURCE, [channel]),)
            except Exception as e:
                # Without an answer, the driver would wait until the timeout.
                cause = f"{cause}; and its rows could not be stored: {e}"
        event = Declined(
            attempt=self._order.attempt,
            region=self.region,
            cause=cause,
            in_flight=stored,
            had_rows=bool(rows),
            problem=problem,
        )
        return Answered(event, self._in_flight_segments(stored), figures=self._figures)

    def _settle(self, answer: Answered) -> None:
        """Only the first answer counts: `expire` and `advance` may both come to one."""
        with self._lock:
            if self.answer is None:
                self.answer = answer
                return
        for output in answer.outputs:
            output.discard()
        if answer.keep is not None:
            close_instances(answer.keep)

    def _store_in_quarantine(self, base: RegionEntry) -> bool:
        """Store the rows behind those that the region owes, and run nothing (R27)."""
        if not self.feed.ended:
            return False
        attempt = self._order.attempt
        owed = with_rows(
            base.in_flight,
            self.feed.source_rows,
            store=self._store,
            stored=self._stored,
            owners=self._owners,
            attempt=attempt,
            skipped=self._skipped,
        )
        entry = quarantined(base, owed)
        segments = self._in_flight_segments(owed[-1:])
        self._settle(Answered(Acked(attempt=attempt, region=self.region, entry=entry), segments))
        return True

    def _advance(self, now_ms: int) -> bool:
        if self._graph is None:
            self._open()
            return True
        graph = self._graph
        if self._barrier_is_due(graph, now_ms):
            if self._tell_time(graph):
                return True
            if ends := self._order.end_of_data or self._retiring or self._finishing:
                # In front of the barrier, so that the snapshot holds the flushed state (R61).
                graph.end()
            aligned = self._order.drain or ends
            graph.barrier(self._order.attempt, self._begun_ms, now_ms, aligned=aligned)
            self._barrier_sent = True
            return True
        if self.feed.event_is_next:
            if not graph.holds_rows():
                self._take_event()
                return True
        elif self.feed.waits and not self._barrier_sent and graph.room():
            self._feed(graph)
        begun = time.monotonic()
        self._at_work = True
        worked = graph.step(now_ms) is Progress.WORKED
        self._at_work = False
        if worked:
            self._step_size.took((time.monotonic() - begun) * 1e3)
            self._progressed = True
        self._stage_output(graph)
        follows = self._plan.splits is not None or self._suspects is not None
        if worked and follows and not graph.holds_rows():
            self.feed.passed()
        snapshot = graph.take_snapshot()
        if snapshot is not None:
            self._acknowledge(snapshot)
            return True
        if not worked and self.feed.ended and not self.feed.waits:
            self._progressed = True  # there is nothing to take in
            return True
        return worked or self.feed.waits

    def _feed(self, graph: RegionGraph) -> None:
        """Give the graph its next rows, or set a row aside that fails."""
        suspects = self._suspects
        if suspects is None or not suspects.found:
            graph.feed(self.feed.next_rows())
        elif not graph.holds_rows():
            if (bad := self.feed.next_bad()) is None:
                graph.feed(self.feed.next_rows())
            else:
                self._reject(*bad)
                self._suspects = suspects

    @property
    def _finishing(self) -> bool:
        """An operator has ended the region's data."""
        return any(instance.finishing for instance in chain.from_iterable(self._instances or ()))

    def _barrier_is_due(self, graph: RegionGraph, now_ms: int) -> bool:
        """Say whether to send the barrier: behind all rows, or before if it overtakes.

        Rows that are in the graph go first unless that takes too long, because an operator may end
        the region's data. Then all rows go first.

        Never before any progress. An attempt may begin later than its alignment timeout, and a
        region that only ever stored its rows would get nowhere. No barrier overtakes an event.
        """
        if self._barrier_sent or not self.feed.ended or not self._progressed:
            return False
        if self._finishing:
            return not self.feed.waits and not graph.holds_rows()
        if self.feed.waits:
            return not self.feed.has_events and self._overtakes(now_ms)
        return not graph.holds_rows() or self._is_late(now_ms)

    def _tell_time(self, graph: RegionGraph) -> bool:
        """Tell the next operator the time, behind all rows (R65, R68); False if all know it.

        Rows that the operator puts out go through the graph before the one behind it is told. If a
        barrier overtakes these rows, the next attempt tells the rest.
        """
        if not self._untold or graph.holds_rows():
            return False
        watermark = next((one.watermark() for one in self._instances_of(WATERMARK)), None)
        stage = self._untold.popleft()
        graph.call(stage, lambda instance: instance.on_time(watermark))
        return True

    def _take_event(self) -> None:
        """Hand an event to its operator: the rows before it are through the whole graph."""
        event = self.feed.next_event()
        for instance in self._instances_of(event.operator):
            instance.on_event(event.event)
        self._progressed = True

    def _instances_of(self, operator: str) -> Iterable[OperatorInstance]:
        stages = zip(self._plan.stages, self._instances or (), strict=True)
        return chain.from_iterable(found for stage, found in stages if stage.name == operator)

    def _overtakes(self, now_ms: int) -> bool:
        """Say whether the barrier passes rows that were not fed (R51), if not too many (R58)."""
        if not self._is_late(now_ms):
            return False
        waiting: int = sum(batch.nbytes for batch in self.feed.all_waiting())
        return waiting <= self._half_of_in_flight_bytes

    def _is_late(self, now_ms: int) -> bool:
        """Say whether the barrier may overtake rows by now (R51)."""
        timeout = self._plan.options.aligned_timeout_ms
        if timeout is None or self._order.drain:
            return False
        return now_ms - self._begun_ms >= timeout

    def _open(self) -> None:
        """Open the operators, and put in-flight data in front of new rows (R55)."""
        self._instances = self._opened()
        if rested_ms := self._order.rested_ms.get(self.region):
            for instance in self._instances_of(WATERMARK):
                instance.rest(rested_ms)
        for instance in chain.from_iterable(self._instances):
            instance.retiring = self._retiring
            instance.begin(partial(self._lease, instance.name))
            for ended in self._order.ended:
                instance.tell(ended, self.region, self._took_part)
        self._untold = deque(self._with_time())
        options = self._plan.options
        specs = []
        for stage, instances in zip(self._plan.stages, self._instances, strict=True):
            # Without a route, several instances would be wired one to one.
            of = f"route_by of operator {stage.name!r}"
            route = route_by(stage.route_by, of=of) if stage.parallelism > 1 else None
            specs.append(StageSpec(stage.name, instances, route))
        graph = RegionGraph(
            specs,
            capacity_batches=options.capacity_batches,
            timeout_ms=options.aligned_timeout_ms,
            max_in_flight_bytes=self._half_of_in_flight_bytes,
        )
        seen: list[ChannelData] = []
        events = deque(
            event
            for event in self._order.events.get(self.region, ())
            if event.operator != SOURCE_OPERATOR
        )
        for data in self._base.in_flight if self._base is not None else ():
            while events and events[0].attempt <= data.created:
                self.feed.owe_event(events.popleft())
            if data.channel == SOURCE:
                self.feed.owe([data])
                continue
            for channel in read_in_flight(self._stored, self._owners, data):
                # Rows that no operator has seen are fed like new ones, and may be overtaken again.
                if channel.channel == SOURCE:
                    self.feed.owe(channel.batches)
                else:
                    seen.append(channel)
        for event in events:
            self.feed.owe_event(event)
        graph.restore(seen)
        if seen:
            self._suspects = None  # such rows may be the ones that fail
        self._graph = graph

    def _opened(self) -> Instances:
        """Return the instances of all stages, with open tables and the times of the attempt."""
        times = AttemptTimes.at(self._order.created_ms)
        opened = []
        for number, stage in enumerate(self._plan.stages):
            if self._instances is None:
                of_stage = tuple(
                    self._restored(stage, index, times) for index in range(stage.parallelism)
                )
            else:
                of_stage = self._instances[number]
                for instance in of_stage:
                    instance.open_tables(self._open_table, times)
            opened.append(of_stage)
            if stage.name == WATERMARK:
                times = replace(times, watermark=of_stage[0].watermark())
        return tuple(opened)

    def _with_time(self) -> Iterable[str]:
        """Names of the operators that want to hear of the time."""
        for stage in self._plan.stages:
            if any(one.hears_time for one in self._instances_of(stage.name)):
                yield stage.name

    def _restored(self, stage: Any, index: int, times: AttemptTimes) -> OperatorInstance:
        name = stage.instance_name(index)
        known = self._base.operators if self._base is not None else ()
        entry = next((found for found in known if found.name == name), None)
        operator = stage.new_operator()
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
            sides=SideRows.of(self._plan),
            drop_undeclared=self._plan.options.drop_undeclared_state,
            tables=self._open_table,
            times=times,
        )

    def _open_table(
        self,
        operator: str,
        state: str,
        keys: Sequence[str],
        values: Sequence[str],
        commit: str | None,
    ) -> TableSession:
        owner = self._owners.state(operator, state)
        attempt = self._order.attempt
        return self._store.open_table(owner, attempt, keys=keys, values=values, id=commit)

    def _lease(self, operator: str, state: str, refs: Sequence[SegmentRef]) -> Sequence[bool]:
        owner = self._owners.state(operator, state)
        return self._store.lease(owner, self._order.attempt, refs)

    def _stage_output(self, graph: RegionGraph) -> None:
        for rows in graph.take_output():
            self._write(self._plan.outputs[0], rows.batch)
        if len(self._plan.outputs) > 1 and self._instances is not None:
            sides = {output.name: output for output in self._plan.outputs}
            for instance in chain.from_iterable(self._instances):
                for side, batch in instance.take_emitted():
                    self._write(sides[side], batch)

    def _write(self, output: OutputPlan, rows: pa.RecordBatch) -> None:
        if output.name not in self._outputs:
            self._outputs[output.name] = OutputAtWork(
                output, [self.region], self._order.attempt, shares=self._shares
            )
        self._outputs[output.name].write(rows)

    def _acknowledge(self, snapshot: RegionSnapshot) -> None:
        attempt = self._order.attempt
        entries: list[OperatorEntry] = []
        segments: list[tuple[Owner, Sequence[SegmentRef]]] = []
        # Nothing stays of a region that is retired but the rows that it put out (R66).
        for plan in () if self._retiring else self._plan.stages:
            for index in range(plan.parallelism):
                entry = write_operator(
                    self._store,
                    self._owners,
                    attempt,
                    plan.instance_name(index),
                    cast("Sequence[FrozenState]", snapshot.states[plan.name, index]),
                    finished=(plan.name, index) in snapshot.finished,
                )
                entries.append(entry)
                segments.extend(segments_of(self._owners, entry))
        in_flight = self._captured(snapshot)
        segments.extend(self._in_flight_segments(in_flight))
        closed = {output: output.close() for output in self._outputs.values()}
        staged = {output: one for output, one in closed.items() if one is not None}
        region_entry = RegionEntry(
            self.region,
            origin=attempt,
            operators=entries,
            in_flight=in_flight,
            staged=tuple(staged.values()),
            finished=bool(entries) and all(entry.finished for entry in entries),
        )
        sent = list(self.sent)
        for plan in self._plan.stages:
            for instance in self._instances_of(plan.name):
                sent += [(plan.name, event) for event in instance.sent]
        # No data moved since the snapshots were taken, so the operators are exactly at them.
        keep, self._instances = self._instances, None
        self._outputs = {}
        # Freed now, and not with the graphs of all other regions of the task: with ten thousand
        # regions, Python's collector would look through all their objects once more.
        self._graph = None
        figures = figures_of(keep) if keep is not None else b""
        if keep is not None and self._retiring:
            close_instances(keep)
            keep = None
        self._settle(
            Answered(
                Acked(attempt=attempt, region=self.region, entry=region_entry, events=sent),
                segments,
                tuple(staged),
                tuple(output for output in closed if output.taken.rows),
                keep=keep,
                figures=figures,
            )
        )

    def _captured(self, snapshot: RegionSnapshot) -> tuple[InFlight, ...]:
        """Store rows that the barrier overtook: between operators, or not even fed."""
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

    def _let_go(self) -> None:
        """Discard the output, and close the operators."""
        for output in self._outputs.values():
            output.discard()
        self._outputs = {}
        if self._instances is not None:
            self._figures = figures_of(self._instances)
            close_instances(self._instances)
            self._instances = None
