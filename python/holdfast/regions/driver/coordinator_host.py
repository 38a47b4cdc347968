"""Calls operators' coordinators on the driver, and keeps their events to regions."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.regions.base.problem import in_words
from holdfast.regions.coordinator import (
    AskFallback,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Deliver,
    Event,
    EventGate,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    NotifyCoordinator,
    ResetCoordinator,
    ResetRegion,
    SnapshotCoordinators,
)
from holdfast.regions.coordinator.operator_coordinator import EventSender, OperatorCoordinator

LOG: Final = logging.getLogger(__name__)


class CoordinatorHost:
    """Executes the checkpoint coordinator's actions that concern operators' coordinators.

    An event travels with the order of an attempt, which is the barrier, too. A region that gets the
    order has every event from before the snapshot. A region that does not get it falls back or
    makes the attempt abort (R31). So no event is ever on its way while a snapshot is taken.

    Parameters
    ----------
    timeout_s : float
        Seconds after which a coordinator that does not return counts as failed (R35).

    Raises
    ------
    Exception
        The exception of a coordinator that is opened; those before it are closed.
    """

    def __init__(
        self, coordinators: Mapping[str, OperatorCoordinator], *, timeout_s: float
    ) -> None:
        self._hosted: dict[str, _Hosted] = {}
        try:
            for name, coordinator in coordinators.items():
                self._hosted[name] = _Hosted(name, coordinator, timeout_s)
        except BaseException:
            self.close()
            raise

    def supports_fallback(self) -> dict[str, bool]:
        """Return for every coordinator whether it supports fallback (R15)."""
        return {name: h.coordinator.supports_fallback for name, h in self._hosted.items()}

    def snapshot(self, action: SnapshotCoordinators, *, new_rows: bool) -> list[Event]:
        """Take the coordinators' snapshots for an attempt.

        With `new_rows` the attempt runs a batch, so work is assigned for it first.
        """
        return [
            self._hosted[name].snapshot(action.attempt, new_rows=new_rows)
            for name in action.operators
        ]

    def fallback(self, action: AskFallback) -> Event:
        """Ask for a snapshot that is consistent with failed regions (R32)."""
        return self._hosted[action.operator].fallback(action)

    def reset(self, action: ResetCoordinator) -> None:
        """Go back to a checkpoint (R33)."""
        self._hosted[action.operator].reset(action.snapshot)

    def reset_region(self, action: ResetRegion) -> None:
        """Let one region go on from its origin (R33)."""
        self._hosted[action.operator].reset_region(action.region, action.origin)

    def notify(self, action: NotifyCoordinator) -> None:
        """Tell how an attempt ended; best effort (R34, R42)."""
        self._hosted[action.operator].notify(action)

    def skipped_splits(self) -> int:
        """Return how many splits of the source are skipped."""
        return sum(hosted.coordinator.skipped_splits for hosted in self._hosted.values())

    def take_events(self) -> dict[str, tuple[bytes, ...]]:
        """Return the events to deliver with the order of an attempt, by region."""
        events: dict[str, list[bytes]] = {}
        for hosted in self._hosted.values():
            for deliver in hosted.take_events():
                events.setdefault(deliver.region, []).append(deliver.event)
        return {region: tuple(found) for region, found in events.items()}

    def acked(self, region: str, attempt: int) -> None:
        """Note that a region has taken its snapshot."""
        for hosted in self._hosted.values():
            hosted.acked(region, attempt)

    def ended(self, attempt: int) -> None:
        """Note that an attempt is over."""
        for hosted in self._hosted.values():
            hosted.ended(attempt)

    def close(self) -> None:
        """Close the coordinators; may be repeated."""
        for hosted in self._hosted.values():
            hosted.close()


class _Hosted:
    """One coordinator, its thread, and the gate of its events."""

    def __init__(self, name: str, coordinator: OperatorCoordinator, timeout_s: float) -> None:
        self.coordinator = coordinator
        self._name = name
        self._thread = _CallingThread(f"holdfast-{name}", timeout_s)
        self._gate = EventGate()
        self._outbox: list[Deliver] = []
        # Held while the coordinator's state and its events have to agree. Threads of the
        # coordinator take it, too. Taken before the other lock, which is held briefly.
        self._step = threading.RLock()
        self._lock = threading.Lock()
        self._given_up = -1
        self._closed = False
        try:
            self._thread.call(coordinator.open, EventSender(self._send, self._step))
        except BaseException:
            self._thread.end()
            raise

    def snapshot(self, attempt: int, *, new_rows: bool) -> Event:
        try:
            if new_rows:
                self._thread.call(self.coordinator.assign, attempt)
            data = self._thread.call(self._checkpoint, attempt, named=self.coordinator.checkpoint)
        except Exception as e:
            LOG.warning("the coordinator of %r failed", self._name, exc_info=True)
            with self._lock:
                self._given_up = attempt
            return CoordinatorSnapshotFailed(
                attempt=attempt, operator=self._name, cause=in_words(e)
            )
        return CoordinatorSnapshot(attempt=attempt, operator=self._name, data=data)

    def _checkpoint(self, attempt: int) -> bytes:
        """Take the snapshot and close the gate, as one step of the coordinator (R31).

        The coordinator's thread does both. If the driver's thread closed the gate, other threads of
        the coordinator could send events in between that the snapshot does not have.
        """
        with self._step:
            data = self.coordinator.checkpoint(attempt)
            with self._lock:
                # An attempt that timed out has ended, and would never open the gate again.
                if attempt > self._given_up:
                    self._gate.close(attempt)
        return data

    def fallback(self, action: AskFallback) -> Event:
        attempt, name = action.attempt, self._name
        try:
            for region, refused in action.refused.items():
                for event, reason in refused:
                    self._thread.call(self.coordinator.refused, attempt, region, event, reason)
            data = self._thread.call(
                self.coordinator.checkpoint_fallback, attempt, dict(action.origins)
            )
        except Exception as e:
            LOG.warning("the coordinator of %r failed", name, exc_info=True)
            return FallbackSnapshotFailed(attempt=attempt, operator=name, cause=in_words(e))
        return FallbackSnapshot(attempt=attempt, operator=name, data=data)

    def reset(self, snapshot: bytes | None) -> None:
        self._thread.call(self._reset, snapshot, named=self.coordinator.reset)

    def _reset(self, snapshot: bytes | None) -> None:
        """Drop events that did not arrive and go back, as one step: events sent in it are new."""
        with self._step:
            with self._lock:
                self._outbox.clear()
                self._gate.reset_all()
            self.coordinator.reset(snapshot)

    def reset_region(self, region: str, origin: int) -> None:
        self._thread.call(self._reset_region, region, origin, named=self.coordinator.region_reset)

    def _reset_region(self, region: str, origin: int) -> None:
        with self._step:
            with self._lock:
                self._outbox = [deliver for deliver in self._outbox if deliver.region != region]
                self._gate.reset(region)
            self.coordinator.region_reset(region, origin)

    def notify(self, action: NotifyCoordinator) -> None:
        try:
            if action.kind == "completed":
                self._thread.call(
                    self.coordinator.completed, action.attempt, dict(action.effective)
                )
            else:
                self._thread.call(self.coordinator.aborted, action.attempt)
        except Exception:
            LOG.warning("the coordinator of %r failed to take a notice", self._name, exc_info=True)

    def take_events(self) -> list[Deliver]:
        with self._lock:
            taken, self._outbox = self._outbox, []
        return taken

    def acked(self, region: str, attempt: int) -> None:
        with self._lock:
            self._outbox += self._gate.acked(region, attempt)

    def ended(self, attempt: int) -> None:
        with self._lock:
            self._outbox += self._gate.ended(attempt)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(self.coordinator.close)
        except Exception:
            LOG.warning("the coordinator of %r failed to close", self._name, exc_info=True)
        self._thread.end()

    def _send(self, region: str, event: bytes) -> None:
        with self._lock:
            self._outbox += self._gate.send(region, event)


class _CallingThread:
    """A thread for calls that may never return; it does not keep the process alive."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        named: Callable[..., Any] | None = None,
    ) -> Any:
        """Return or raise the function's result; an error may name the function that it calls.

        Raises
        ------
        TimeoutError
            If it did not return in time.
        """
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answer.put((function(*arguments), None))
            except BaseException as e:
                answer.put((None, e))

        self._calls.put(work)
        try:
            value, error = answer.get(timeout=self._timeout_s)
        except queue.Empty:
            raise TimeoutError(
                f"{(named or function).__qualname__} did not return within region_timeout "
                f"({self._timeout_s:g} s)"
            ) from None
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Let the thread end, once it has returned from its calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            work()
