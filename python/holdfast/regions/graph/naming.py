"""Names of instances, and of the channels that join them."""

from __future__ import annotations

from holdfast.regions.graph.data import SOURCE, InstanceKey
from holdfast.regions.graph.spec import ARROW


def instance_name(key: InstanceKey) -> str:
    """Return the part of an instance in the names of its channels."""
    stage, number = key
    return f"{stage}.{number}"


def channel_name(producer: InstanceKey | None, consumer: InstanceKey) -> str:
    """Return the name of the channel between two instances; None: from the region's source."""
    before = SOURCE if producer is None else instance_name(producer)
    return f"{before}{ARROW}{instance_name(consumer)}"
