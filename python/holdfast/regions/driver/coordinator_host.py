"""Calls operators' coordinators on the driver, and keeps their events to regions."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from holdfast.regions.base.callbacks import called
from holdfast.regions.base.problem import in_words
from holdfast.regions.coordinator import (
    AskFallback,
    CheckpointInfo,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Event,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    NotifyCoordinator,
    ResetCoordinator,
    ResetRegion,
    SettleEvents,
    SnapshotCoordinators,
)
from holdfast.regions.coordinator.operator_coordinator import (
    EventGateway,
    OperatorCoordinator,
    require_event,
)
from holdfast.regions.driver.outbox import Outbox, Waiting
from holdfast.regions.protocol.orders import RegionEvent
from holdfast.regions.splits import SplitEnumerator
from holdfast.regions.task.operators import Operator

LOG: Final = logging.getLogger(__name__)


class CoordinatorHost:
    """Executes the checkpoint coordinator's actions that concern operators' coordinators.

    An event travels with the order of an attempt, which is the barrier, too. A region that gets the
    order has every event from before the snapshot. A region that does not get it falls back or
    makes the attempt abort (R31). So no event is on its way while a snapshot is taken.

    - `coordinators`: by the name of their operator, or of the source. All are started; if one
      raises, those before it are closed.
    - `timeout_s`: seconds after which a coordinator that does not return counts as failed (R35).
    - `operators`: classes of those operators: they take events if they define ``on_event``. Without
      a class, it is the coordinator of a source, which may name new regions.
    """

    def __init__(
        self,
        coordinators: Mapping[str, OperatorCoordinator],
        *,
        timeout_s: float,
        operators: Mapping[str, type[Operator]] | None = None,
    ) -> None:
        self._hosted: dict[str, Hosted] = {}
        classes = operators or {}
        try:
            for name, coordinator in coordinators.items():
                self._hosted[name] = Hosted(name, coordinator, timeout_s, classes.get(name))
        except BaseException:
            self.close()
            raise

    def supports_fallback(self) -> dict[str, bool]:
        """Return for every coordinator whether it supports fallback (R15)."""
        return {name: h.coordinator.supports_fallback for name, h in self._hosted.items()}

    def snapshot(self, action: SnapshotCoordinators, *, new_rows: bool) -> list[Event]:
        """Take snapshots for an attempt; with `new_rows`, work is assigned for the batch first."""
        return [
            self._hosted[name].snapshot(action.attempt, new_rows=new_rows)
            for name in action.operators
        ]

    def of(self, operator: str) -> Hosted:
        """Return the coordinator of an operator, for actions that concern only this one."""
        return self._hosted[operator]

    def skipped_splits(self) -> int:
        """Return how many splits of the source are skipped."""
        coordinators = (hosted.coordinator for hosted in self._hosted.values())
        return sum(c.skipped_splits for c in coordinators if isinstance(c, SplitEnumerator))

    def take_events(self) -> dict[str, tuple[RegionEvent, ...]]:
        """Return an order's events by region, in the order of attempts, then of operators."""
        events: dict[str, list[RegionEvent]] = {}
        for name, hosted in self._hosted.items():
            for region, waiting in hosted.outbox.waiting().items():
                events.setdefault(region, []).extend(
                    RegionEvent(attempt, name, event) for attempt, event in waiting
                )
        by_attempt = attrgetter("attempt")
        return {region: tuple(sorted(found, key=by_attempt)) for region, found in events.items()}

    def acked(self, region: str, attempt: int) -> None:
        """Note that a region has taken its snapshot."""
        for hosted in self._hosted.values():
            hosted.outbox.acked(region, attempt)

    def ended(self, attempt: int) -> None:
        """Note that an attempt is over."""
        for hosted in self._hosted.values():
            hosted.outbox.ended(attempt)

    def close(self) -> None:
        """Close the coordinators; may be repeated."""
        for hosted in self._hosted.values():
            hosted.close()


# Coordinators of running pipelines, by their ids, since they need not be hashable.
_serving: Final = weakref.WeakValueDictionary[int, OperatorCoordinator]()
_serving_lock: Final = threading.Lock()


class Hosted:
    """One coordinator, its thread, and its events to regions."""

    def __init__(
        self,
        name: str,
        coordinator: OperatorCoordinator,
        timeout_s: float,
        operator: type[Operator] | None,
    ) -> None:
        given = type(coordinator)
        if coordinator.takes_back_events and (
            given.checkpoint_fallback is OperatorCoordinator.checkpoint_fallback
            or given.region_reset is OperatorCoordinator.region_reset
        ):
            raise TypeError(
                f"{given.__name__} takes back events of regions that fall back, so it has to "
                "define checkpoint_fallback and region_reset: the events would be lost"
            )
        with _serving_lock:
            if id(coordinator) in _serving:
                raise RuntimeError(
                    f"the {given.__name__} of {name!r} serves an operator of a running pipeline "
                    "already: give each its own, or close that pipeline first"
                )
            _serving[id(coordinator)] = coordinator
        self.coordinator = coordinator
        self._name = name
        self._operator = operator
        self._thread = _CallingThread(f"holdfast-{name}", timeout_s)
        self.outbox = Outbox(knows_regions=operator is not None)
        # Held while state and events must agree. Threads of the coordinator take it, too.
        self._step = threading.RLock()
        # The latest checkpoint. After an exception the coordinator goes back to it.
        self._latest: ResetCoordinator | SettleEvents = ResetCoordinator(
            operator=name, snapshot=None
        )
        self._completed: NotifyCoordinator | None = None
        self._failed = False
        # The coordinator keeps the gateway, so the gateway must not refer to the coordinator.
        hosted = weakref.ref(self)

        def send(region: str, event: bytes) -> None:
            if (host := hosted()) is None:
                raise RuntimeError(f"{_named(region, name)} cannot be sent: the pipeline has ended")
            host._send(region, event)

        def regions() -> frozenset[str]:
            return frozenset() if (host := hosted()) is None else host.outbox.regions

        gateway = EventGateway(send, self._step, regions)
        try:
            self._thread.call(called, coordinator.start, gateway, named=coordinator.start)
        except BaseException:
            self._end()
            raise

    # --- an attempt -----------------------------------------------------------------------------

    def snapshot(self, attempt: int, *, new_rows: bool) -> Event:
        """Return the coordinator's snapshot for an attempt, or its failure."""
        try:
            if self._failed:
                # Raises if the coordinator fails at its events again.
                self._failed = False
                self._go_back(self._let_handle)
            if new_rows:
                self._thread.call(self._begin_batch, attempt, named=self.coordinator.begin_batch)
            data, waiting = self._thread.call(
                self._checkpoint, attempt, named=self.coordinator.checkpoint
            )
        except Exception as e:
            LOG.warning("the coordinator of %r failed", self._name, exc_info=True)
            self._failed = True
            self.outbox.give_up(attempt)
            return CoordinatorSnapshotFailed(
                attempt=attempt, operator=self._name, cause=in_words(e)
            )
        return CoordinatorSnapshot(
            attempt=attempt,
            operator=self._name,
            data=data,
            waiting=waiting,
            takes_back=self.coordinator.takes_back_events,
        )

    def _begin_batch(self, attempt: int) -> None:
        with self._step:
            called(self.coordinator.begin_batch, attempt)

    def _checkpoint(self, attempt: int) -> tuple[bytes, Waiting]:
        """Take the snapshot and close the gate, as one step of the coordinator (R31).

        The coordinator's thread does both: between two threads, other threads of the coordinator
        could send events that the snapshot does not have.
        """
        with self._step:
            data = self._in_bytes(self.coordinator.checkpoint(attempt), "checkpoint")
            return data, self.outbox.snapshot(attempt)

    def fallback(self, action: AskFallback) -> Event:
        """Ask for a snapshot that is consistent with failed regions (R32)."""
        attempt, name, ask = action.attempt, self._name, self.coordinator.checkpoint_fallback
        try:
            data = self._thread.call(ask, attempt, dict(action.origins))
            if data is not None:
                self._in_bytes(data, "checkpoint_fallback")
        except Exception as e:
            LOG.warning("the coordinator of %r failed", name, exc_info=True)
            return FallbackSnapshotFailed(attempt=attempt, operator=name, cause=in_words(e))
        return FallbackSnapshot(attempt=attempt, operator=name, data=data)

    def _in_bytes(self, data: object, call: str) -> bytes:
        if not isinstance(data, bytes):
            raise TypeError(
                f"{type(self.coordinator).__name__}.{call}() returned {type(data).__name__}: "
                "expected bytes"
            )
        return data

    # --- the end of an attempt ------------------------------------------------------------------

    def reset(self, action: ResetCoordinator) -> None:
        """Go back to a checkpoint (R33)."""
        self._latest = action
        self._go_back(self._hand_over)

    def _go_back(self, hand_over: Callable[[Sequence[tuple[str, bytes]]], None]) -> None:
        self._thread.call(self._reset, named=self.coordinator.reset)
        hand_over(self._latest.events.received)
        if self._completed is not None:
            self.notify(self._completed)

    def _reset(self) -> None:
        """Go back without undelivered events, in one step: events sent in it are new."""
        with self._step:
            self.outbox.reset(self._latest.events, self._latest.regions)
            called(self.coordinator.reset, self._latest.snapshot)

    def settle(self, action: SettleEvents) -> None:
        """Hand over the events of regions in a completed checkpoint (R36)."""
        self._latest = action
        self.outbox.settle(action.events, action.regions)
        self._hand_over(action.events.received)

    def _hand_over(self, received: Sequence[tuple[str, bytes]]) -> None:
        """Call the coordinator with events of regions; if it fails, before the next snapshot."""
        if not received:
            return
        try:
            self._let_handle(received)
        except Exception:
            self._failed = True
            LOG.warning(
                "the coordinator of %r failed at an event of a region; it goes back to the latest "
                "checkpoint before the next batch, and gets the events again",
                self._name,
                exc_info=True,
            )

    def _let_handle(self, received: Sequence[tuple[str, bytes]]) -> None:
        self._thread.call(self._handle, received, named=self.coordinator.handle_event)

    def _handle(self, received: Sequence[tuple[str, bytes]]) -> None:
        with self._step:
            for region, event in received:
                called(self.coordinator.handle_event, region, event)

    def reset_region(self, action: ResetRegion) -> None:
        """Restart one region from its origin (R33)."""
        self._thread.call(self._reset_region, action, named=self.coordinator.region_reset)

    def _reset_region(self, action: ResetRegion) -> None:
        with self._step:
            if self.coordinator.takes_back_events:
                self.outbox.take_back(action.region)
            called(self.coordinator.region_reset, action.region, action.origin)

    def notify(self, action: NotifyCoordinator) -> None:
        """Tell how an attempt ended; best effort (R34, R42)."""
        try:
            if action.kind == "completed":
                self._completed = action
                effective = action.effective.items()
                info = CheckpointInfo(
                    checkpoint=action.attempt,
                    took_part=action.took_part,
                    fallbacks={region: id for region, id in effective if id != action.attempt},
                )
                complete = self.coordinator.checkpoint_complete
                self._thread.call(called, complete, info, named=complete)
            else:
                aborted = self.coordinator.checkpoint_aborted
                self._thread.call(called, aborted, action.attempt, named=aborted)
        except Exception:
            LOG.warning("the coordinator of %r failed to take a notice", self._name, exc_info=True)

    def close(self) -> None:
        """End the coordinator and its thread; may be repeated."""
        if not self.outbox.close():
            return
        try:
            close = self.coordinator.close
            self._thread.call(called, close, named=close)
        except Exception:
            LOG.warning("the coordinator of %r failed to close", self._name, exc_info=True)
        self._end()

    def _end(self) -> None:
        self._thread.end()
        with _serving_lock:
            _serving.pop(id(self.coordinator), None)

    def _send(self, region: str, event: bytes) -> None:
        to = _named(region, self._name)
        require_event(event, to)
        if self._operator is not None and self._operator.on_event is Operator.on_event:
            raise TypeError(
                f"{to} cannot be sent: {self._operator.__name__} does not define on_event(event)"
            )
        self.outbox.send(region, event, to)


def _named(region: str, operator: str) -> str:
    return f"an event to region {region!r} of {operator!r}"


class _CallingThread:
    """A thread for calls that may never return; it does not keep the process alive."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._silent = False
        self._thread = threading.Thread(
            target=_work_off, args=(self._calls,), name=name, daemon=True
        )
        self._thread.start()

    def call(
        self, function: Callable[..., Any], *arguments: Any, named: Callable[..., Any] | None = None
    ) -> Any:
        """Return the function's result; raise its error or TimeoutError. Errors name `named`."""
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                answer.put((function(*arguments), None))
            except Exception as e:
                answer.put((None, e))
            except BaseException as e:
                # sys.exit() in a coordinator is its failure. It must not end the driver's thread,
                # since Spark would get no answer.
                error = RuntimeError(f"{(named or function).__qualname__} raised {in_words(e)}")
                error.__cause__ = e
                answer.put((None, error))

        self._calls.put(work)
        try:
            value, error = answer.get(timeout=self._timeout_s)
        except queue.Empty:
            self._silent = True
            raise TimeoutError(
                f"{(named or function).__qualname__} did not return within region_timeout "
                f"({self._timeout_s:g} s)"
            ) from None
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """End the thread after its calls; waits for its end if it answered all of them."""
        self._calls.put(None)
        if not self._silent and self._thread is not threading.current_thread():
            self._thread.join()


def _work_off(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := calls.get()) is not None:
        work()
        del work
