"""Events of an operator's coordinator to regions, pending or held back."""

from __future__ import annotations

import logging
import threading
from typing import Final

from holdfast.regions.coordinator import CoordinatorEvents, Deliver, EventGate
from holdfast.regions.coordinator.operator_coordinator import MAX_EVENTS_BYTES

LOG: Final = logging.getLogger(__name__)

Waiting = dict[str, tuple[tuple[int, bytes], ...]]


class Outbox:
    """The events that a coordinator sends. Several threads may call it.

    `regions` are those of the latest checkpoint whose data has not ended. With `knows_regions`, no
    others get events.
    """

    def __init__(self, *, knows_regions: bool) -> None:
        self._knows_regions = knows_regions
        self._gate = EventGate()
        # Events that passed the gate since the last snapshot; and earlier ones that no region's
        # contributed state reflects.
        self._fresh: list[Deliver] = []
        self._waiting: Waiting = {}
        self._sent_bytes = 0
        self._given_up = -1
        self._closed = False
        self._lock = threading.Lock()
        self.regions: frozenset[str] = frozenset()

    def send(self, region: str, event: bytes, to: str) -> None:
        """Send an event; `to` names it in errors.

        Raises a RuntimeError if the pipeline has ended, or too many bytes wait, and a ValueError
        for an unknown region.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{to} cannot be sent: the pipeline has ended")
            if self._knows_regions and region not in self.regions:
                raise ValueError(
                    f"{to} cannot be sent: there is no such region in the latest checkpoint, or "
                    "its data has ended; gateway.regions has those that there are"
                )
            if self._sent_bytes + len(event) > MAX_EVENTS_BYTES:
                raise RuntimeError(
                    f"{to} cannot be sent: {self._sent_bytes} bytes of events wait for regions, "
                    f"and {MAX_EVENTS_BYTES} may; send fewer in a batch, or references to data "
                    "that regions read from a file system"
                )
            self._sent_bytes += len(event)
            self._fresh += self._gate.send(region, event)

    def snapshot(self, attempt: int) -> Waiting:
        """Close the gate for an attempt, and return the events from before (R31)."""
        with self._lock:
            # A timed-out attempt has ended, and would never open the gate again.
            if attempt > self._given_up:
                self._gate.close(attempt)
            for sent in self._fresh:
                if self._knows_regions and sent.region not in self.regions:
                    # It was sent while the last batch of the region ran.
                    LOG.warning("an event to region %r is dropped: its data ended", sent.region)
                    continue
                before = self._waiting.get(sent.region, ())
                self._waiting[sent.region] = (*before, (attempt, sent.event))
            self._fresh.clear()
            return dict(self._waiting)

    def give_up(self, attempt: int) -> None:
        """Leave the gate open for an attempt whose snapshot failed, and may end later."""
        with self._lock:
            self._given_up = attempt

    def waiting(self) -> Waiting:
        """Return the events that no region's contributed state reflects."""
        with self._lock:
            return dict(self._waiting)

    def acked(self, region: str, attempt: int) -> None:
        """Note that a region has taken its snapshot."""
        with self._lock:
            self._fresh += self._gate.acked(region, attempt)

    def ended(self, attempt: int) -> None:
        """Note that an attempt is over."""
        with self._lock:
            self._fresh += self._gate.ended(attempt)

    def reset(self, events: CoordinatorEvents, regions: frozenset[str]) -> None:
        """Drop undelivered events, and go back to the events of a checkpoint."""
        with self._lock:
            self._fresh.clear()
            self._gate.reset_all()
            self._take_over(events, regions)

    def settle(self, events: CoordinatorEvents, regions: frozenset[str]) -> None:
        """Continue from a completed checkpoint."""
        with self._lock:
            self._take_over(events, regions)

    def take_back(self, region: str) -> None:
        """Drop undelivered events to a region that falls back."""
        with self._lock:
            self._fresh = [one for one in self._fresh if one.region != region]
            self._gate.reset(region)

    def close(self) -> bool:
        """Refuse further events; False if they are refused already."""
        with self._lock:
            was_closed, self._closed = self._closed, True
            return not was_closed

    def _take_over(self, events: CoordinatorEvents, regions: frozenset[str]) -> None:
        self._waiting = dict(events.waiting)
        self.regions = regions
        waiting = [event for of_one in self._waiting.values() for _, event in of_one]
        fresh = [deliver.event for deliver in (*self._fresh, *self._gate.held)]
        self._sent_bytes = sum(map(len, (*waiting, *fresh)))
