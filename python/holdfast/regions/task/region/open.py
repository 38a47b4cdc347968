"""A region opens its operators, and takes in its pending rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import chain

from holdfast.regions.base.routing import route_by
from holdfast.regions.base.saved import SavedState
from holdfast.regions.graph import SOURCE, ChannelData, RegionGraph, StageSpec
from holdfast.regions.protocol.orders import StagePlan
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.state.segments import read_in_flight, read_operator
from holdfast.regions.state.tables.times import AttemptTimes
from holdfast.regions.task.instance import Instances, OperatorInstance
from holdfast.regions.task.region.answer import Phase, Work
from holdfast.regions.task.region.barrier import Running
from holdfast.regions.task.region.region import Region
from holdfast.regions.task.side_rows import SideRows
from holdfast.regions.task.watermark import WATERMARK


class Opening(Phase):
    """The region opens its operators, or continues with kept ones.

    `cached` operators have exactly the state of the base. With `again`, the region begins again,
    once it has all rows of the batch.
    """

    def __init__(self, region: Region, cached: Instances | None, *, again: bool = False) -> None:
        self._region = region
        self.instances = cached
        self._again = again

    def step(self, now_ms: int) -> Phase | Work:
        """Open all operators, and put in-flight data before new rows (R55)."""
        region, task = self._region, self._region.task
        if self._again:
            if not region.feed.ended:
                return Work.WAITS
            region.feed.begin_again()
        instances = self.instances = self._opened(self.instances)
        for instance in chain.from_iterable(instances):
            if rested_ms := task.order.rested_ms.get(region.name):
                instance.rest(rested_ms)
            instance.retiring = region.retiring
            instance.begin(partial(region.store.lease, instance.name))
            for ended in task.order.ended:
                instance.tell(ended, region.name, task.took_part)
        return Running(region, instances, self._graph(instances))

    def _graph(self, instances: Instances) -> RegionGraph:
        """Join the operators, with the pending rows between them."""
        region, plan = self._region, self._region.task.plan
        specs = []
        for stage, of_stage in zip(plan.stages, instances, strict=True):
            # Without a route, several instances would be wired one to one.
            of = f"route_by of operator {stage.name!r}"
            route = route_by(stage.route_by, of=of) if stage.parallelism > 1 else None
            specs.append(StageSpec(stage.name, of_stage, route))
        graph = RegionGraph(
            specs,
            capacity_batches=plan.options.capacity_batches,
            timeout_ms=plan.options.aligned_timeout_ms,
            max_in_flight_bytes=region.half_of_in_flight_bytes,
        )
        seen = self._owe()
        graph.restore(seen)
        if seen:
            region.feed.suspects = None  # these rows may be the ones that fail
        return graph

    def _owe(self) -> list[ChannelData]:
        """Give the feed the pending rows; returns rows that some operator has seen."""
        region = self._region
        seen: list[ChannelData] = []
        events = deque(
            event
            for event in region.task.order.events.get(region.name, ())
            if event.operator != SOURCE_OPERATOR
        )
        for data in region.base.in_flight if region.base is not None else ():
            while events and events[0].attempt <= data.created:
                region.feed.owe([events.popleft()])
            if data.channel == SOURCE:
                left_out = sum(end - begin for begin, end in region.store.skipped(data))
                region.feed.owe([data] if left_out < data.rows else [])
                continue
            for channel in read_in_flight(region.task.stored, region.store.owners, data):
                # Rows that no operator has seen are fed like new ones, and may be overtaken again.
                if channel.channel == SOURCE:
                    region.feed.owe(channel.batches)
                else:
                    seen.append(channel)
        region.feed.owe(events)
        return seen

    def _opened(self, cached: Instances | None) -> Instances:
        """Return the instances of all operators, with open tables and the times of the attempt."""
        task = self._region.task
        times = AttemptTimes.at(task.order.created_ms)
        opened = []
        for number, stage in enumerate(task.plan.stages):
            if cached is None:
                of_stage = tuple(
                    self._restored(stage, index, times) for index in range(stage.parallelism)
                )
            else:
                of_stage = cached[number]
                for instance in of_stage:
                    instance.open_tables(self._region.store.open_table, times)
            opened.append(of_stage)
            if stage.name == WATERMARK:
                times = replace(times, watermark=of_stage[0].watermark())
        return tuple(opened)

    def _restored(self, stage: StagePlan, index: int, times: AttemptTimes) -> OperatorInstance:
        region, task = self._region, self._region.task
        name = stage.instance_name(index)
        known = region.base.operators if region.base is not None else ()
        entry = next((found for found in known if found.name == name), None)
        operator = stage.new_operator()
        saved: Iterable[SavedState] = ()
        if entry is not None:
            saved = read_operator(task.stored, region.store.owners, entry)
        elif not operator.region_safe:
            saved = task.shared.of(stage)
        return OperatorInstance(
            stage,
            operator,
            region=region.name,
            index=index,
            saved=saved,
            xp=task.xp,
            sides=SideRows.of(task.plan),
            drop_undeclared=task.plan.options.drop_undeclared_state,
            tables=region.store.open_table,
            times=times,
        )
