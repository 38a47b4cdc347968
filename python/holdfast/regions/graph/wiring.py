"""Join the stages of a graph by channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.regions.graph.attempt import Instance
from holdfast.regions.graph.channel import Channel, Outlet
from holdfast.regions.graph.data import InstanceKey, channel_name
from holdfast.regions.graph.spec import StageSpec


def wire(
    stages: Sequence[StageSpec], new_channel: Callable[[str], Channel]
) -> tuple[Outlet, list[Instance]]:
    """Build all instances and channels; returns the source's outlet, and the instances in order.

    Raises a ValueError without a stage, for equal names, or if a stage without a route has another
    number of instances than one or that of the stage before.
    """
    if not stages:
        raise ValueError("expected at least one stage, found none")
    names = [spec.name for spec in stages]
    if len(set(names)) != len(names):
        raise ValueError(f"expected stages with different names, found {', '.join(names)}")
    outlets, before = _join([None], stages[0], new_channel)
    source, instances = outlets[0], list(before)
    for spec in stages[1:]:
        outlets, after = _join([instance.key for instance in before], spec, new_channel)
        for instance, outlet in zip(before, outlets, strict=True):
            instance.outlet = outlet
        instances += after
        before = after
    return source, instances


def _join(
    producers: Sequence[InstanceKey | None], spec: StageSpec, new_channel: Callable[[str], Channel]
) -> tuple[list[Outlet], list[Instance]]:
    """Build one stage and the outlets of everything that writes to it."""
    count = len(spec.instances)
    if spec.route is None and count not in (1, len(producers)):
        raise ValueError(
            f"stage {spec.name}: expected one instance or {len(producers)}, as in front of it, "
            f"because it has no route, found {count}"
        )
    forward = spec.route is None and count > 1
    channels = [
        [
            new_channel(channel_name(producer, (spec.name, number)))
            for number in ([index] if forward else range(count))
        ]
        for index, producer in enumerate(producers)
    ]
    outlets = [Outlet(spec.name, row, spec.route) for row in channels]
    instances = [
        Instance(
            (spec.name, number),
            operator,
            channels[number] if forward else [row[number] for row in channels],
        )
        for number, operator in enumerate(spec.instances)
    ]
    return outlets, instances
