"""Events between an operator's coordinator and its regions (R31)."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from holdfast.regions.coordinator import CheckpointInfo, Deliver, EventGate, event_gate
from holdfast.regions.coordinator.operator_coordinator import OperatorCoordinator


def events(delivered: list[Deliver]) -> list[tuple[str, bytes]]:
    return [(deliver.region, deliver.event) for deliver in delivered]


def test_the_example_is_true() -> None:
    assert doctest.testmod(event_gate).failed == 0


def test_events_pass_while_no_snapshot_is_under_way() -> None:
    gate = EventGate()
    assert gate.send("a", b"x") == [Deliver(region="a", event=b"x")]
    assert events(gate.send("a", b"y") + gate.send("b", b"z")) == [("a", b"y"), ("b", b"z")]


def test_later_events_wait_for_their_region_alone() -> None:
    gate = EventGate()
    gate.close(1)
    for number, region in enumerate("aabb"):
        assert gate.send(region, b"%d" % number) == []
    assert events(gate.acked("a", 1)) == [("a", b"0"), ("a", b"1")]
    assert events(gate.send("a", b"4")) == [("a", b"4")]
    assert gate.send("b", b"5") == []
    assert gate.acked("a", 1) == []
    assert events(gate.ended(1)) == [("b", b"2"), ("b", b"3"), ("b", b"5")]
    assert events(gate.send("b", b"6")) == [("b", b"6")]


def test_news_of_another_attempt_opens_nothing() -> None:
    gate = EventGate()
    gate.close(2)
    gate.send("a", b"")
    assert gate.acked("a", 1) == gate.ended(1) == gate.acked("a", 3) == []
    assert gate.send("a", b"") == []
    assert len(gate.ended(2)) == 2
    assert gate.ended(2) == []


def test_a_second_attempt_waits_for_the_end_of_the_first() -> None:  # R1
    gate = EventGate()
    gate.close(1)
    with pytest.raises(RuntimeError, match="open for attempt 2, found it closed for attempt 1"):
        gate.close(2)


def test_a_restarted_region_gets_nothing_of_before() -> None:  # R33
    gate = EventGate()
    gate.close(1)
    gate.send("a", b"1")
    gate.send("b", b"2")
    gate.reset("a")
    gate.reset("unknown")
    assert events(gate.ended(1)) == [("b", b"2")]
    gate.close(2)
    gate.send("a", b"3")
    gate.send("b", b"4")
    gate.reset_all()
    assert gate.acked("a", 2) == gate.ended(2) == []


class Gate(RuleBasedStateMachine):
    """Each event carries its number; regions check when they get it, and in which order."""

    regions = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.gate = EventGate()
        self.attempt = 0
        self.closed = False
        self.acked: set[str] = set()
        self.sent = 0
        self.held: dict[str, list[int]] = {region: [] for region in "abc"}

    def due(self, delivered: list[Deliver], expected: dict[str, list[int]]) -> None:
        """Exactly what was held back, in its order; none to a region whose gate is closed."""
        found: dict[str, list[int]] = {}
        for deliver in delivered:
            assert not (self.closed and deliver.region not in self.acked)
            found.setdefault(deliver.region, []).append(int(deliver.event))
        assert found == {region: numbers for region, numbers in expected.items() if numbers}
        for region in expected:
            self.held[region] = []

    @rule(region=regions)
    def send(self, region: str) -> None:
        self.sent += 1
        delivered = self.gate.send(region, b"%d" % self.sent)
        if self.closed and region not in self.acked:
            assert delivered == []
            self.held[region].append(self.sent)
        else:
            self.due(delivered, {region: [self.sent]})

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        self.attempt += 1
        self.closed = True
        self.acked = set()
        self.gate.close(self.attempt)

    @rule(region=regions, ago=st.integers(0, 1))
    def ack(self, region: str, ago: int) -> None:
        delivered = self.gate.acked(region, self.attempt - ago)
        if ago == 0 and self.closed:
            self.acked.add(region)
            self.due(delivered, {region: self.held[region]})
        else:
            assert delivered == []

    @rule(ago=st.integers(0, 1))
    def end(self, ago: int) -> None:
        delivered = self.gate.ended(self.attempt - ago)
        if ago == 0 and self.closed:
            self.closed = False
            self.due(delivered, self.held)
        else:
            assert delivered == []

    @rule(region=regions)
    def reset(self, region: str) -> None:
        self.gate.reset(region)
        self.held[region] = []

    @rule()
    def reset_all(self) -> None:
        self.gate.reset_all()
        self.held = {region: [] for region in "abc"}


Gate.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGate = Gate.TestCase


# --- the base class -------------------------------------------------------------------------------


class Plain(OperatorCoordinator):
    def checkpoint(self, checkpoint: int) -> bytes:
        return b"state"

    def reset(self, snapshot: bytes | None) -> None:
        self.snapshot = snapshot

    def region_reset(self, region: str, origin: int) -> None:
        self.origin = origin


def test_a_coordinator_supports_no_fallback_unless_it_says_so() -> None:  # R15
    plain = Plain()
    assert not plain.supports_fallback
    assert not plain.takes_back_events
    assert plain.checkpoint_fallback(1, {"a": 0}) is None
    plain.begin_batch(1)
    plain.checkpoint_complete(CheckpointInfo(checkpoint=1))
    plain.checkpoint_aborted(2)
    plain.close()
