"""The gate between an operator's coordinator and its regions (R31)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Deliver:
    """Hand the event to the region with the next order of an attempt."""

    region: str
    event: bytes


class EventGate:
    """Keeps events to regions on the right side of a checkpoint.

    The return of a coordinator's ``checkpoint`` divides its events. Earlier ones belong to the
    checkpoint, so its regions must have them before they take their snapshots. Later ones are held
    back until the region has taken its own snapshot. The idea is that of Flink's gateways of
    subtasks (FLINK-21996, FLINK-28606).

    Events that pass the gate travel with the order of an attempt, which is the barrier, too. So no
    event is on its way while a snapshot is taken, and none is lost, repeated alone, or needs a
    number or a confirmation. One gate serves one coordinator. It does no I/O and never waits.

    Examples
    --------
    >>> gate = EventGate()
    >>> gate.send("east", b"split 1")
    [Deliver(region='east', event=b'split 1')]
    >>> gate.close(7)
    >>> gate.send("east", b"split 2")
    []
    >>> gate.acked("east", 7)
    [Deliver(region='east', event=b'split 2')]
    """

    def __init__(self) -> None:
        self._held: dict[str, list[Deliver]] = {}
        self._attempt: int | None = None
        self._passed: set[str] = set()

    @property
    def held(self) -> list[Deliver]:
        """The held events."""
        return [deliver for events in self._held.values() for deliver in events]

    def send(self, region: str, event: bytes) -> list[Deliver]:
        """Send an event; returns the events to deliver now: none through a closed gate."""
        deliver = Deliver(region=region, event=event)
        if self._attempt is not None and region not in self._passed:
            self._held.setdefault(region, []).append(deliver)
            return []
        return [deliver]

    def close(self, attempt: int) -> None:
        """Close all gates after the snapshot; RuntimeError during another attempt (R1)."""
        if self._attempt is not None:
            raise RuntimeError(
                f"expected the gate to be open for attempt {attempt}, "
                f"found it closed for attempt {self._attempt}"
            )
        self._attempt = attempt
        self._passed = set()

    def acked(self, region: str, attempt: int) -> list[Deliver]:
        """Open the gate of a region that has taken its own snapshot for the attempt."""
        if attempt != self._attempt:
            return []
        self._passed.add(region)
        return self._held.pop(region, [])

    def ended(self, attempt: int) -> list[Deliver]:
        """Open all gates: the attempt completed or was aborted. Ignores an older attempt."""
        if attempt != self._attempt:
            return []
        self._attempt = None
        held, self._held = self._held, {}
        return [deliver for events in held.values() for deliver in events]

    def reset(self, region: str) -> None:
        """Drop held events of a region; its coordinator sends them again after its origin (R33)."""
        self._held.pop(region, None)

    def reset_all(self) -> None:
        """Drop the held events of all regions, which go back to a checkpoint."""
        self._held.clear()
