"""Telling a snapshot manager of this process what the coordinator decided."""

from __future__ import annotations

from holdfast._core import SnapshotManager
from holdfast.regions.coordinator import NotifyManagers


def tell(manager: SnapshotManager, message: NotifyManagers) -> None:
    """Pass a message on to a manager.

    Raises
    ------
    ValueError
        If the view in the message cannot be one of its moment.
    """
    if message.message == "aborted":
        manager.aborted(message.checkpoint, message.retained, decided=message.decided)
    else:  # a checkpoint that completed is one that completed partially, without fallbacks
        manager.partially_completed(
            message.checkpoint, message.fallbacks, message.retained, decided=message.decided
        )
