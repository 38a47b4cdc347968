"""The events of a coordinator in the metadata of a checkpoint, next to its snapshot."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from holdfast.regions.base.versions import require_known
from holdfast.regions.coordinator.actions import CoordinatorEvents

#: Follows the operator's name: no operator may have a name with "#" in it.
SUFFIX: Final = "#events"

VERSION: Final = 1


def record_name(operator: str) -> str:
    """Return the name under which the metadata of a checkpoint has a coordinator's events."""
    return operator + SUFFIX


def encode(events: CoordinatorEvents) -> bytes:
    """Return events as JSON; empty if there are none."""
    if not (events.waiting or events.received):
        return b""
    content = {
        "version": VERSION,
        "waiting": {
            region: [[attempt, b64encode(event).decode()] for attempt, event in waiting]
            for region, waiting in sorted(events.waiting.items())
        },
        "received": [[region, b64encode(event).decode()] for region, event in events.received],
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_all(coordinators: Mapping[str, bytes]) -> dict[str, CoordinatorEvents]:
    """Return the events in the metadata of a checkpoint, by operator; see `decode`."""
    operators = [name.removesuffix(SUFFIX) for name in coordinators if name.endswith(SUFFIX)]
    return {operator: decode(coordinators, operator) for operator in operators}


def decode(coordinators: Mapping[str, bytes], operator: str) -> CoordinatorEvents:
    """Return the events of a coordinator; NewerFormatError if a newer Holdfast wrote them."""
    record = coordinators.get(record_name(operator))
    if record is None:
        return CoordinatorEvents()
    content = json.loads(record)
    require_known(f"the events of the coordinator of {operator!r}", content["version"], VERSION)
    return CoordinatorEvents(
        waiting={
            region: tuple((attempt, b64decode(event)) for attempt, event in waiting)
            for region, waiting in content["waiting"].items()
        },
        received=tuple((region, b64decode(event)) for region, event in content["received"]),
    )
