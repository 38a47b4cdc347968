"""Calling operators' coordinators: answers, exceptions, silence, and events on their way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from holdfast.regions.coordinator import (
    AskFallback,
    CheckpointInfo,
    CoordinatorEvents,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    NotifyCoordinator,
    ResetCoordinator,
    ResetRegion,
    SettleEvents,
    SnapshotCoordinators,
)
from holdfast.regions.coordinator.operator_coordinator import EventGateway, OperatorCoordinator
from holdfast.regions.driver.coordinator_host import CoordinatorHost, _CallingThread


class Recording(OperatorCoordinator):
    """Writes down what it is told; raises where `broken` says so, hangs until `released`."""

    supports_fallback = True
    takes_back_events = True

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.broken: set[str] = set()
        self.hanging: set[str] = set()
        self.released = threading.Event()
        self.threads: set[int] = set()
        self.to_assign: list[tuple[str, bytes]] = []

    def _note(self, *told: object) -> None:
        self.told.append(told)
        self.threads.add(threading.get_ident())
        if told[0] in self.broken:
            raise RuntimeError(f"no {told[0]} today")
        if told[0] in self.hanging:
            self.released.wait(60)

    def start(self, gateway: EventGateway) -> None:
        self.gateway = gateway
        self._note("start")

    def send(self, region: str, event: bytes) -> None:
        self.gateway.send(region, event)

    def begin_batch(self, checkpoint: int) -> None:
        self._note("begin_batch", checkpoint)
        for region, event in self.to_assign:
            self.send(region, event)
        self.to_assign = []

    def checkpoint(self, checkpoint: int) -> bytes:
        self._note("checkpoint", checkpoint)
        return b"state %d" % checkpoint

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        self._note("checkpoint_fallback", checkpoint, dict(origins))
        return b"fallback %d" % checkpoint

    def reset(self, snapshot: bytes | None) -> None:
        self._note("reset", snapshot)

    def region_reset(self, region: str, origin: int) -> None:
        self._note("region_reset", region, origin)

    def handle_event(self, region: str, event: bytes) -> None:
        self._note("handle_event", region, event)

    def checkpoint_complete(self, info: CheckpointInfo) -> None:
        self._note("complete", info.checkpoint, dict(info.fallbacks))

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self._note("aborted", checkpoint)

    def close(self) -> None:
        self._note("close")


@pytest.fixture
def source() -> Iterator[Recording]:
    recording = Recording()
    yield recording
    recording.released.set()


@pytest.fixture
def host(source: Recording) -> CoordinatorHost:
    return CoordinatorHost({"source": source}, timeout_s=30)


def ordered(host: CoordinatorHost, attempt: int) -> dict[str, tuple[bytes, ...]]:
    """Events that were sent for an attempt, from the order that it would have."""
    found = {
        region: tuple(sent.event for sent in events if sent.attempt == attempt)
        for region, events in host.take_events().items()
    }
    return {region: events for region, events in found.items() if events}


def settle(
    host: CoordinatorHost,
    attempt: int,
    waiting: Mapping[str, tuple[tuple[int, bytes], ...]] | None = None,
    received: Sequence[tuple[str, bytes]] = (),
    regions: Sequence[str] = ("east", "west"),
) -> None:
    """Let a checkpoint complete."""
    events = CoordinatorEvents(waiting=waiting or {}, received=tuple(received))
    data = b"state %d" % attempt
    (name,) = host.supports_fallback()
    host.of(name).settle(
        SettleEvents(operator=name, snapshot=data, events=events, regions=frozenset(regions))
    )
    host.ended(attempt)


def snapshot(host: CoordinatorHost, attempt: int, *, new_rows: bool = True) -> object:
    action = SnapshotCoordinators(attempt=attempt, operators=("source",))
    (event,) = host.snapshot(action, new_rows=new_rows)
    return event


def test_a_snapshot_is_taken_after_work_was_assigned(
    host: CoordinatorHost, source: Recording
) -> None:
    source.to_assign = [("east", b"1"), ("west", b"2"), ("east", b"3")]
    event = snapshot(host, 7)
    assert event == CoordinatorSnapshot(
        attempt=7,
        operator="source",
        data=b"state 7",
        waiting={"east": ((7, b"1"), (7, b"3")), "west": ((7, b"2"),)},
        takes_back=True,
    )
    assert source.told == [("start",), ("begin_batch", 7), ("checkpoint", 7)]
    assert ordered(host, 7) == {"east": (b"1", b"3"), "west": (b"2",)}
    settle(host, 7)
    assert host.take_events() == {}


def test_a_replay_assigns_nothing(host: CoordinatorHost, source: Recording) -> None:
    snapshot(host, 7, new_rows=False)
    assert source.told == [("start",), ("checkpoint", 7)]


@pytest.mark.parametrize("broken", ["begin_batch", "checkpoint"])
def test_an_exception_is_a_failed_snapshot(  # R35
    host: CoordinatorHost, source: Recording, broken: str
) -> None:
    source.broken = {broken}
    event = snapshot(host, 7)
    assert isinstance(event, CoordinatorSnapshotFailed)
    assert event.cause == f"RuntimeError: no {broken} today"
    # The gate is open still: the next attempt takes its snapshot.
    source.broken = set()
    assert isinstance(snapshot(host, 8), CoordinatorSnapshot)


def test_a_coordinator_that_never_answers_is_bounded_by_the_timeout(source: Recording) -> None:
    source.hanging = {"checkpoint"}
    host = CoordinatorHost({"source": source}, timeout_s=0.05)
    event = snapshot(host, 7)
    assert isinstance(event, CoordinatorSnapshotFailed)
    assert "did not return within region_timeout (0.05 s)" in event.cause


def test_what_was_opened_is_closed_when_another_does_not_open(source: Recording) -> None:
    broken, never = Recording(), Recording()
    broken.broken = {"start"}
    coordinators = {"source": source, "broken": broken, "never": never}
    with pytest.raises(RuntimeError, match="no start today"):
        CoordinatorHost(coordinators, timeout_s=30)
    assert (source.told, broken.told, never.told) == ([("start",), ("close",)], [("start",)], [])
    called = source.threads | broken.threads
    for thread in threading.enumerate():
        if thread.ident in called:
            thread.join(30)
            assert not thread.is_alive()


def test_a_fallback_that_fails_is_told(host: CoordinatorHost, source: Recording) -> None:
    ask = AskFallback(attempt=7, operator="source", origins={"east": 5})
    assert host.of("source").fallback(ask) == FallbackSnapshot(
        attempt=7, operator="source", data=b"fallback 7"
    )
    assert source.told[-1] == ("checkpoint_fallback", 7, {"east": 5})
    source.broken = {"checkpoint_fallback"}
    event = host.of("source").fallback(ask)
    assert isinstance(event, FallbackSnapshotFailed)
    assert event.cause == "RuntimeError: no checkpoint_fallback today"


def test_what_is_sent_after_the_snapshot_comes_with_the_next_attempt(  # R31
    host: CoordinatorHost, source: Recording
) -> None:
    snapshot(host, 7)
    source.send("east", b"later")
    host.acked("west", 7)
    host.acked("east", 6)
    host.acked("east", 7)
    assert host.take_events() == {}
    host.ended(7)
    snapshot(host, 8)
    assert ordered(host, 8) == {"east": (b"later",)}


def test_the_gate_is_closed_when_a_snapshot_was_taken_and_the_driver_does_not_know_yet(  # R31
    host: CoordinatorHost, source: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = _CallingThread.call

    def late(thread: _CallingThread, *arguments: Any, **named: Any) -> Any:
        answer = call(thread, *arguments, **named)
        if source.told[-1] == ("checkpoint", 7):
            source.send("east", b"later")
        return answer

    monkeypatch.setattr(_CallingThread, "call", late)
    event = snapshot(host, 7)
    assert isinstance(event, CoordinatorSnapshot)
    assert not event.waiting
    assert host.take_events() == {}
    host.ended(7)
    snapshot(host, 8)
    assert ordered(host, 8) == {"east": (b"later",)}


class Counting(Recording):
    """Threads of its own count events while they send them; a snapshot is the count."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.count = 0
        self.ending = threading.Event()
        self.to_send = threading.Semaphore(0)
        self.senders = [threading.Thread(target=self._work) for _ in range(threads)]

    def _work(self) -> None:
        while self.to_send.acquire(timeout=60) and not self.ending.is_set():
            with self.gateway.in_one_step():
                self.count += 1
                self.send("east", b"%d" % self.count)

    def checkpoint(self, checkpoint: int) -> bytes:
        return b"%d" % self.count

    def reset(self, snapshot: bytes | None) -> None:
        self.count = int(snapshot or 0)


def test_a_snapshot_has_what_was_sent_before_and_nothing_else() -> None:  # R31
    source = Counting(3)
    host = CoordinatorHost({"source": source}, timeout_s=30)
    for sender in source.senders:
        sender.start()
    try:
        arrived: list[int] = []
        for attempt in range(1, 101):
            source.to_send.release(60)
            event = snapshot(host, attempt)
            assert isinstance(event, CoordinatorSnapshot)
            arrived += [int(sent) for sent in ordered(host, attempt).get("east", ())]
            assert arrived == list(range(1, int(event.data) + 1))
            if attempt % 2:
                host.acked("east", attempt)
            host.ended(attempt)
            if attempt % 10 == 0:
                # All go back: what was sent since the snapshot is nowhere, and counted anew.
                host.of("source").reset(ResetCoordinator(operator="source", snapshot=event.data))
    finally:
        source.ending.set()
        source.to_send.release(len(source.senders))
        for sender in source.senders:
            sender.join(30)
        host.close()


def test_a_snapshot_that_comes_too_late_closes_no_gate(source: Recording) -> None:
    source.hanging = {"checkpoint"}
    host = CoordinatorHost({"source": source}, timeout_s=0.05)
    assert isinstance(snapshot(host, 7), CoordinatorSnapshotFailed)
    host.ended(7)
    source.hanging = set()
    source.released.set()
    attempts = itertools.count(8)
    # On a slow machine, others may come too late.
    while isinstance(snapshot(host, attempt := next(attempts)), CoordinatorSnapshotFailed):
        host.ended(attempt)
    host.ended(attempt)
    source.send("east", b"at once")
    while isinstance(snapshot(host, attempt := next(attempts)), CoordinatorSnapshotFailed):
        host.ended(attempt)
    assert [sent.event for sent in host.take_events()["east"]] == [b"at once"]


def test_a_reset_drops_what_did_not_arrive(host: CoordinatorHost, source: Recording) -> None:
    source.send("east", b"waiting")
    snapshot(host, 7)
    source.send("east", b"held")
    host.of("source").reset(ResetCoordinator(operator="source", snapshot=b"state 6"))
    host.ended(7)
    assert source.told[-1] == ("reset", b"state 6")
    snapshot(host, 8)
    assert host.take_events() == {}


@pytest.mark.parametrize("takes_back", [True, False])
def test_events_of_a_region_that_restarts_are_dropped_if_they_are_taken_back(  # R33
    source: Recording, takes_back: bool
) -> None:
    source.takes_back_events = takes_back  # type: ignore[misc]
    host = CoordinatorHost({"source": source}, timeout_s=30)
    snapshot(host, 7)
    for region, event in [("east", b"1"), ("west", b"2")]:
        source.send(region, event)
    host.of("source").reset_region(ResetRegion(operator="source", region="east", origin=5))
    assert source.told[-1] == ("region_reset", "east", 5)
    host.ended(7)
    source.send("east", b"3")
    source.send("west", b"4")
    host.of("source").reset_region(ResetRegion(operator="source", region="east", origin=5))
    snapshot(host, 8)
    kept = {"west": (b"2", b"4")}
    assert ordered(host, 8) == (kept if takes_back else {**kept, "east": (b"1", b"3")})


def test_notices_are_best_effort(host: CoordinatorHost, source: Recording) -> None:
    source.broken = {"complete", "aborted", "close"}
    for kind in ("completed", "aborted"):
        host.of("source").notify(
            NotifyCoordinator(operator="source", kind=kind, attempt=7, effective={"east": 7})
        )
    assert source.told[1:] == [("complete", 7, {}), ("aborted", 7)]
    host.close()
    host.close()
    assert source.told[3:] == [("close",)]


def test_a_reset_that_fails_is_an_error(host: CoordinatorHost, source: Recording) -> None:
    source.broken = {"reset", "region_reset"}
    with pytest.raises(RuntimeError, match="no reset today"):
        host.of("source").reset(ResetCoordinator(operator="source", snapshot=None))
    with pytest.raises(RuntimeError, match="no region_reset today"):
        host.of("source").reset_region(ResetRegion(operator="source", region="east", origin=5))


def test_one_thread_makes_all_calls(host: CoordinatorHost, source: Recording) -> None:
    snapshot(host, 7)
    host.of("source").fallback(AskFallback(attempt=7, operator="source", origins={}))
    host.of("source").reset(ResetCoordinator(operator="source", snapshot=None))
    host.close()
    assert len(source.threads) == 1
