"""The gate between an operator's coordinator and its regions (R31)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

#: A region and the sequence number of an event to it.
EventKey = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deliver:
    """Hand the event to the region, then tell the gate `EventGate.confirmed` or `EventGate.lost`.

    Attributes
    ----------
    sequence : int
        Rises within a region, and is never used twice, so that a region knows a repetition.
    """

    region: str
    sequence: int
    event: bytes


class SnapshotState(Enum):
    """What the snapshot of the coordinator is worth so far."""

    WAITING = auto()
    COUNTS = auto()
    FAILED = auto()


@dataclass
class _Region:
    """One region's events.

    Attributes
    ----------
    unconfirmed : set of int
        Handed out, not known to have arrived.
    held : list of Deliver
        Sent since the snapshot, while the region has not taken its own.
    """

    sequence: int = 0
    unconfirmed: set[int] = field(default_factory=set)
    held: list[Deliver] = field(default_factory=list)


class EventGate:
    """Keeps events to regions on the right side of a checkpoint.

    The moment a coordinator's ``checkpoint`` returns divides its events: earlier ones belong to the
    checkpoint, so they must have arrived before the snapshot counts; later ones do not, so they
    are held back until the region has taken its own snapshot. The idea is that of Flink's gateways
    of subtasks (FLINK-21996, FLINK-28606).

    One gate serves one coordinator. It is pure: it does no I/O and waits for nothing.

    Examples
    --------
    >>> gate = EventGate()
    >>> gate.send("east", b"split 1")
    [Deliver(region='east', sequence=1, event=b'split 1')]
    >>> gate.close(7)
    <SnapshotState.WAITING: 1>
    >>> gate.send("east", b"split 2")
    []
    >>> gate.confirmed("east", 1)
    <SnapshotState.COUNTS: 2>
    >>> gate.acked("east", 7)
    [Deliver(region='east', sequence=2, event=b'split 2')]
    """

    def __init__(self) -> None:
        self._regions: dict[str, _Region] = {}
        self._attempt: int | None = None
        self._passed: set[str] = set()
        self._awaited: set[EventKey] = set()
        self._failed = False

    def send(self, region: str, event: bytes) -> list[Deliver]:
        """Send an event to a region.

        Returns
        -------
        list of Deliver
            What is to be delivered now; empty while the region's gate is closed.
        """
        state = self._regions.setdefault(region, _Region())
        state.sequence += 1
        deliver = Deliver(region=region, sequence=state.sequence, event=event)
        if self._attempt is not None and region not in self._passed:
            state.held.append(deliver)
            return []
        state.unconfirmed.add(deliver.sequence)
        return [deliver]

    def close(self, attempt: int) -> SnapshotState:
        """Close the gate of every region: the coordinator's snapshot for ``attempt`` is taken.

        Raises
        ------
        RuntimeError
            If another attempt has not ended (R1).
        """
        if self._attempt is not None:
            raise RuntimeError(
                f"expected the gate to be open for attempt {attempt}, "
                f"found it closed for attempt {self._attempt}"
            )
        self._attempt = attempt
        self._passed = set()
        self._failed = False
        self._awaited = {
            (region, sequence)
            for region, state in self._regions.items()
            for sequence in state.unconfirmed
        }
        return self.snapshot

    @property
    def snapshot(self) -> SnapshotState:
        """Whether every event from before the snapshot arrived."""
        if self._failed:
            return SnapshotState.FAILED
        return SnapshotState.WAITING if self._awaited else SnapshotState.COUNTS

    def confirmed(self, region: str, sequence: int) -> SnapshotState:
        """Note that an event arrived."""
        if (state := self._regions.get(region)) is not None:
            state.unconfirmed.discard(sequence)
        self._awaited.discard((region, sequence))
        return self.snapshot

    def lost(self, region: str, sequence: int) -> SnapshotState:
        """Note that an event may not have arrived.

        A snapshot that counts on it fails. The region is to be restarted (`reset`), else it goes on
        without the event.
        """
        if (region, sequence) in self._awaited:
            self._failed = True
        return self.confirmed(region, sequence)

    def acked(self, region: str, attempt: int) -> list[Deliver]:
        """Open the gate of a region that has taken its own snapshot for the attempt."""
        if attempt != self._attempt:
            return []
        self._passed.add(region)
        return self._released(region)

    def ended(self, attempt: int) -> list[Deliver]:
        """Open all gates: the attempt completed or was aborted. An older attempt is no news."""
        if attempt != self._attempt:
            return []
        self._attempt = None
        self._awaited.clear()
        return [deliver for region in self._regions for deliver in self._released(region)]

    def reset(self, region: str) -> SnapshotState:
        """Drop what a restarted region has not received.

        Its coordinator sends again what belongs to the region after its origin (R33). An open
        snapshot that counts on dropped events fails.
        """
        if (state := self._regions.get(region)) is not None:
            dropped = {(region, sequence) for sequence in state.unconfirmed}
            self._failed |= not dropped.isdisjoint(self._awaited)
            self._awaited -= dropped
            state.unconfirmed.clear()
            state.held.clear()
        return self.snapshot

    def reset_all(self) -> None:
        """Drop what was not received by any region: all of them go back to a checkpoint."""
        for region in self._regions:
            self.reset(region)

    def _released(self, region: str) -> list[Deliver]:
        state = self._regions.get(region)
        if state is None:
            return []
        released, state.held = state.held, []
        state.unconfirmed.update(deliver.sequence for deliver in released)
        return released
