"""Tells a snapshot manager of this process the decisions of the coordinator."""

from __future__ import annotations

import logging
from typing import Final

from holdfast._core import SnapshotManager
from holdfast.regions.coordinator import NotifyManagers

LOG: Final = logging.getLogger(__name__)


def tell(manager: SnapshotManager, message: NotifyManagers) -> None:
    """Pass a message on to a manager, as far as it can be reached (R43).

    The manager first releases the segments of refused answers: after the decision they count as
    part of the checkpoint. A manager whose folder is away for the moment misses the message. The
    next message says as much about the checkpoints.

    Raises
    ------
    ValueError
        If the view in the message cannot be one of its moment.
    """
    try:
        for owner, refs in message.released.items():
            manager.release(owner, refs)
        if message.message == "aborted":
            manager.aborted(message.checkpoint, message.retained, decided=message.decided)
        else:  # a checkpoint that completed is one that completed partially, without fallbacks
            manager.partially_completed(
                message.checkpoint, message.fallbacks, message.retained, decided=message.decided
            )
    except OSError as e:
        LOG.warning("checkpoint %d: a manager was not told of it: %s", message.checkpoint, e)
