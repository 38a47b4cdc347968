"""A region's state and its in-flight data for another number of instances (R57, R73).

Regions come from the data, so a checkpoint fits any number of them. The layout inside a region may
change. List state is split evenly over the new instances. The entries of maps and tables follow the
rows of their keys. All instances of a changed operator receive its union state of all regions, and
its broadcast state. Arrays and values belong to rows that were routed to an instance, and cannot be
divided. Rows that wait between operators follow the new routes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

from holdfast._core import CheckpointMetadata, InFlight, OperatorEntry, RegionEntry
from holdfast.regions.base.errors import LayoutChangedError
from holdfast.regions.base.saved import SavedState, StateError
from holdfast.regions.checkpoint.copy import SegmentCopies
from holdfast.regions.checkpoint.divided_tables import divide_table
from holdfast.regions.checkpoint.layout import Layout, StageLayout
from holdfast.regions.checkpoint.rerouting import Rerouting
from holdfast.regions.coordinator.event_record import SUFFIX
from holdfast.regions.graph import SOURCE, redistribute
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from holdfast.regions.state.kinds.encoding import MAP
from holdfast.regions.state.kinds.map import divide_map
from holdfast.regions.state.tables.stored_table import FrozenTable
from holdfast.regions.task.shared_states import joined, list_state, shared_states


def require_no_loss(old: Layout, new: Layout, *, drop: bool) -> None:
    """Check the layouts, not the states; `drop` allows to lose states of operators.

    Raises a LayoutChangedError if other columns name regions, or an operator is gone.
    """
    if old.region_by != new.region_by:
        raise LayoutChangedError(
            f"regions were named by {_columns(old.region_by)} and are named by "
            f"{_columns(new.region_by)} now: state cannot follow, because it is not known which "
            "regions its rows belong to; keep region_by, or start with a new checkpoint"
        )
    gone = [stage.name for stage in old.stages if new.stage(stage.name) is None]
    if gone and not drop:
        raise LayoutChangedError(
            f"the checkpoint has state of operator {gone[0]!r}, which the pipeline does not have: "
            "it would be lost; keep the operator and its name, start with "
            "drop_undeclared_state=True, which drops it, or start with a new checkpoint"
        )


def require_coordinators(metadata: CheckpointMetadata, plan: PipelinePlan) -> None:
    """Check that no state of an operator's coordinator, and no event, would be lost.

    Raises a LayoutChangedError if an operator lost its coordinator and its state is not dropped.
    """
    coordinated = {stage.name for stage in plan.stages if stage.coordinated}
    for operator in metadata.coordinators:
        if (
            not operator.startswith(SOURCE_OPERATOR)
            and operator.removesuffix(SUFFIX) not in coordinated
            and not plan.options.drop_undeclared_state
        ):
            raise LayoutChangedError(
                f"checkpoint {metadata.id} has the state of a coordinator of operator "
                f"{operator.removesuffix(SUFFIX)!r}, which has none in the pipeline: it would be "
                "lost, with events on their way; give apply(..., coordinator=...) again, start "
                "with drop_undeclared_state=True, which drops them, or start with a new checkpoint"
            )


def require_in_place(metadata: CheckpointMetadata, old: Layout, new: Layout, *, drop: bool) -> None:
    """Check that a checkpoint can be continued unchanged, in its own folder.

    Raises a LayoutChangedError if a state, or rows between operators, would not be found there.
    """
    require_no_loss(old, new, drop=drop)
    moved = [stage.name for stage in old.stages if new.stage(stage.name) not in (stage, None)]
    if moved:
        raise LayoutChangedError(
            f"parallelism or route_by of operator {moved[0]!r} changed: its state has to be "
            "divided anew, which is done on the way into a new checkpoint folder; start there, "
            "with restore=holdfast.restore(...) of this one"
        )
    waiting = (
        region
        for region, entry in metadata.regions.items()
        if any(data.channel != SOURCE for data in entry.in_flight)
    )
    if old != new and (region := next(waiting, None)) is not None:
        raise LayoutChangedError(
            f"region {region!r} has rows that wait between operators, and the pipeline joins "
            "its operators in another way now: start in a new checkpoint folder, with "
            "restore=holdfast.restore(...) of this one, or start the old pipeline once more and "
            "end it with stop(), on Spark, or finish(), which lets them through"
        )


class Rescaling:
    """Copies regions into another layout; an `holdfast.regions.checkpoint.copy.Adapt`.

    `old` is the layout of the checkpoint, `new` the layout of the pipeline that continues from it,
    and `drop` allows to lose states of operators. Raises a LayoutChangedError if no state could
    follow.
    """

    def __init__(
        self, old: Layout, new: Layout, regions: Mapping[str, RegionEntry], *, drop: bool
    ) -> None:
        require_no_loss(old, new, drop=drop)
        self._regions = regions
        # By operator: its union and broadcast states, from all regions.
        self._shared: dict[str, dict[str, SavedState]] = {}
        self._rewired = old != new
        self._old = old
        self._new = new

    def __call__(
        self, copies: SegmentCopies, entry: RegionEntry
    ) -> tuple[list[OperatorEntry], list[InFlight]]:
        """Copy one region; LayoutChangedError if a state cannot be divided, or as `Rerouting`."""
        known = {operator.name: operator for operator in entry.operators}
        operators: list[OperatorEntry] = []
        for stage in self._old.stages:
            found = [known[name] for name in stage.instances if name in known]
            now = self._new.stage(stage.name)
            if now is None:
                continue
            if now == stage:
                operators += [
                    copies.operator(entry.region, entry.origin, operator) for operator in found
                ]
            elif found:
                operators += self._regrouped(copies, entry, found, stage, now)
        return operators, [self._in_flight(copies, entry.region, data) for data in entry.in_flight]

    def _regrouped(
        self,
        copies: SegmentCopies,
        entry: RegionEntry,
        found: Sequence[OperatorEntry],
        before: StageLayout,
        now: StageLayout,
    ) -> list[OperatorEntry]:
        """Divide the states of an operator's instances over its new ones."""
        by_name: dict[str, dict[str, SavedState]] = {}
        for operator in found:
            for state in copies.states(entry.region, operator):
                by_name.setdefault(state.name, {})[operator.name] = state
        shared = self._shared_states(copies, before)
        where = f"operator {now.name!r} in region {entry.region!r}"
        divided: list[Sequence[SavedState | FrozenTable]] = []
        for name, states in by_name.items():
            if name in shared:
                divided.append([shared[name]] * now.parallelism)
            elif any(state.kind == "table" for state in states.values()):
                tables = (copies, entry.region, entry.origin, states)
                divided.append(divide_table(*tables, before, now, where=where))
            else:
                divided.append(_divide(list(states.values()), before, now, where=where))
        return [
            copies.new_operator(
                entry.region,
                entry.origin,
                name,
                [states[number] for states in divided],
                finished=entry.finished,
            )
            for number, name in enumerate(now.instances)
        ]

    def _shared_states(self, copies: SegmentCopies, stage: StageLayout) -> dict[str, SavedState]:
        """Return the union and broadcast states of an operator, joined over all regions."""
        if stage.name not in self._shared:
            found = shared_states(stage.instances, self._regions, copies.states)
            try:
                states = [joined(of_one, where=f"operator {stage.name!r}") for of_one in found]
            except StateError as e:
                raise LayoutChangedError(str(e)) from e
            self._shared[stage.name] = {state.name: state for state in states}
        return self._shared[stage.name]

    def _in_flight(self, copies: SegmentCopies, region: str, data: InFlight) -> InFlight:
        """Copy pending rows of a region into the channels in which they wait now."""
        # Rows that were not routed yet are not read.
        if not self._rewired or data.channel == SOURCE:
            return copies.in_flight(region, data)
        rerouting = Rerouting(self._old, self._new, region)
        rerouted = redistribute(copies.rows_owed(region, data), rerouting)
        return copies.new_in_flight(region, data, rerouted)


def _divide(
    states: Sequence[SavedState], before: StageLayout, now: StageLayout, *, where: str
) -> list[SavedState]:
    """Return one state for each new instance."""
    first = states[0]
    if first.dtype == MAP:
        if before.route_by and now.route_by and before.route_by != now.route_by:
            raise LayoutChangedError(
                f"{where}: the keys of map state {first.name!r} are values of "
                f"{_columns(before.route_by)}, and rows are routed by {_columns(now.route_by)} "
                "now; keep route_by"
            )
        return [
            SavedState(first.name, first.kind, MAP, (len(data),), memoryview(data))
            for data in divide_map((state.data for state in states), now.parallelism)
        ]
    if first.kind != "list":
        raise LayoutChangedError(
            f"{where}: {first.kind} state {first.name!r} belongs to the rows that went to an "
            "instance, and with another parallelism or route_by others go there; keep both, or "
            "keep such state by key in a map or a table, whose entries follow their rows"
        )
    items = [item for state in states for item in json.loads(bytes(state.data))]
    bounds = [len(items) * number // now.parallelism for number in range(now.parallelism + 1)]
    return [list_state(first, items[start:end]) for start, end in itertools.pairwise(bounds)]


def _columns(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
