"""A region processes rows until its barrier is due, and from then on to its snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain

import pyarrow as pa

from holdfast.regions.graph import Progress, RegionGraph
from holdfast.regions.task.instance import Instances, OperatorInstance
from holdfast.regions.task.region.answer import Answered, Phase, Work, acknowledged
from holdfast.regions.task.region.region import Region
from holdfast.regions.task.side_rows import SideRows
from holdfast.regions.task.watermark import WATERMARK


class _Open(Phase):
    """The operators are open, and joined in a graph."""

    instances: Instances | None

    def __init__(self, region: Region, instances: Instances, graph: RegionGraph) -> None:
        self._region = region
        self.instances = instances
        self._graph = graph

    def _work(self, now_ms: int) -> Work:
        """Let the graph do one unit of work, and write its output rows."""
        region, clock = self._region, self._region.task.clock
        begun = clock()
        try:
            worked = self._graph.step(now_ms) is Progress.WORKED
        except Exception as e:
            if region.feed.suspect(e):
                return Work.AGAIN
            raise
        if worked:
            region.feed.step_size.took((clock() - begun) * 1e3)
        for rows in self._graph.take_output():
            region.write("", rows.batch)
        for instance in chain.from_iterable(self.instances or ()):
            for side, batch in instance.sides.take():
                region.write(side, batch)
        if not self._graph.holds_rows():
            region.feed.under_way.pass_all()
        return Work.DONE if worked else Work.WAITS


class Draining(_Open):
    """The barrier is on its way, and nothing is fed any more."""

    def step(self, now_ms: int) -> Answered | Work:
        """See `Phase`."""
        self._work(now_ms)
        snapshot = self._graph.take_snapshot()
        if snapshot is None or self.instances is None:
            return Work.DONE
        return acknowledged(self._region, self.instances, snapshot)


class Running(_Open):
    """Rows and events go through the graph, up to the barrier."""

    def __init__(self, region: Region, instances: Instances, graph: RegionGraph) -> None:
        super().__init__(region, instances, graph)
        # Operators that have not received the time in this attempt.
        self._untold = deque(
            stage.name
            for stage, of_stage in zip(region.task.plan.stages, instances, strict=True)
            if any(instance.hears_time for instance in of_stage)
        )
        self._progressed = False

    def step(self, now_ms: int) -> Phase | Work:
        """See `Phase`."""
        feed, graph = self._region.feed, self._graph
        if self._barrier_is_due(now_ms):
            return Work.DONE if self._tell_time() else self._send_barrier(now_ms)
        if feed.event_is_next:
            if not graph.holds_rows():
                self._take_event()
                return Work.DONE
        elif feed.waits and graph.room():
            self._feed()
        work = self._work(now_ms)
        # Without any rows, there is nothing to take in.
        if work is Work.DONE or (feed.ended and not feed.waits):
            self._progressed = True
        return Work.DONE if work is Work.WAITS and (feed.ended or feed.waits) else work

    def _feed(self) -> None:
        """Give the graph its next rows, or set a row aside that fails."""
        feed, graph = self._region.feed, self._graph
        if feed.suspects is None or not feed.suspects.found:
            graph.feed(feed.next_rows())
        elif not graph.holds_rows():
            if (bad := feed.next_bad()) is None:
                graph.feed(feed.next_rows())
            else:
                self._reject(*bad)

    def _reject(self, row: pa.RecordBatch, why: str) -> None:
        """Give a row that fails to the side output for it, as an operator would."""
        sides = SideRows.of(self._region.task.plan)
        sides.open = True
        sides.reject(row, why)
        for side, rejected in sides.take():
            self._region.write(side, rejected)

    def _take_event(self) -> None:
        """Hand an event to its operator: the rows before it are through the whole graph."""
        event = self._region.feed.next_event()
        for instance in self._instances_of(event.operator):
            instance.on_event(event.event)
        self._progressed = True

    def _barrier_is_due(self, now_ms: int) -> bool:
        """Say whether to send the barrier: after all rows, or before if it overtakes.

        Rows in the graph go first unless that takes too long, because an operator may end the
        region's data. Then all rows go first. The barrier is never before any progress: an attempt
        may begin later than its alignment timeout, and a region that only stored its rows would
        get nowhere. No barrier overtakes an event.
        """
        feed = self._region.feed
        if not feed.ended or not self._progressed:
            return False
        if self._finishing:
            return not feed.waits and not self._graph.holds_rows()
        if feed.waits:
            return not feed.events and self._overtakes(now_ms)
        return not self._graph.holds_rows() or self._is_late(now_ms)

    def _overtakes(self, now_ms: int) -> bool:
        """Say whether the barrier passes rows that were not fed (R51), if not too many (R58)."""
        if not self._is_late(now_ms):
            return False
        waiting: int = sum(batch.nbytes for batch in self._region.feed.all_waiting())
        return waiting <= self._region.half_of_in_flight_bytes

    def _is_late(self, now_ms: int) -> bool:
        """Say whether the barrier may overtake rows by now (R51)."""
        task = self._region.task
        timeout = task.plan.options.aligned_timeout_ms
        if timeout is None or task.order.drain:
            return False
        return now_ms - task.begun_ms >= timeout

    def _tell_time(self) -> bool:
        """Tell the next operator the time, after all rows (R65, R68); False if all know it.

        Rows that the operator puts out go through the graph before the next one is told. If a
        barrier overtakes these rows, the next attempt tells the rest.
        """
        if not self._untold or self._graph.holds_rows():
            return False
        watermark = next((one.watermark() for one in self._instances_of(WATERMARK)), None)
        stage = self._untold.popleft()
        self._graph.call(stage, lambda instance: instance.on_time(watermark))
        return True

    def _send_barrier(self, now_ms: int) -> Draining:
        region, task, graph = self._region, self._region.task, self._graph
        if ends := task.order.end_of_data or region.retiring or self._finishing:
            # Before the barrier, so that the snapshot has the flushed state (R61).
            graph.end()
        aligned = task.order.drain or ends
        graph.barrier(task.order.attempt, task.begun_ms, now_ms, aligned=aligned)
        region.feed.suspects = None  # rows that the barrier overtook are not searched
        return Draining(region, self.instances or (), graph)

    @property
    def _finishing(self) -> bool:
        """An operator has ended the region's data."""
        return any(instance.finishing for instance in chain.from_iterable(self.instances or ()))

    def _instances_of(self, operator: str) -> Iterable[OperatorInstance]:
        return (
            instance
            for instance in chain.from_iterable(self.instances or ())
            if instance.stage.name == operator
        )
