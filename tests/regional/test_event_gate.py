"""Events between an operator's coordinator and its regions (R31)."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.regions.coordinator import Deliver, EventGate, SnapshotState, event_gate
from holdfast.regions.operator_coordinator import OperatorCoordinator, job_wide

WAITING, COUNTS, FAILED = SnapshotState.WAITING, SnapshotState.COUNTS, SnapshotState.FAILED


def sequences(delivered: list[Deliver]) -> list[tuple[str, int]]:
    return [(deliver.region, deliver.sequence) for deliver in delivered]


def test_the_example_is_true() -> None:
    assert doctest.testmod(event_gate).failed == 0


def test_events_pass_while_no_snapshot_is_under_way() -> None:
    gate = EventGate()
    assert gate.send("a", b"x") == [Deliver(region="a", sequence=1, event=b"x")]
    assert sequences(gate.send("a", b"y") + gate.send("b", b"z")) == [("a", 2), ("b", 1)]


def test_a_snapshot_counts_once_all_earlier_events_arrived() -> None:
    gate = EventGate()
    gate.send("a", b"")
    gate.send("b", b"")
    gate.confirmed("a", 1)
    assert gate.close(1) is WAITING
    assert gate.confirmed("a", 1) is WAITING
    assert gate.confirmed("b", 1) is COUNTS
    gate.ended(1)
    assert gate.close(2) is COUNTS


def test_later_events_wait_for_their_region_alone() -> None:
    gate = EventGate()
    gate.close(1)
    for region in "aab":
        assert gate.send(region, b"") == []
    assert sequences(gate.acked("a", 1)) == [("a", 1), ("a", 2)]
    assert sequences(gate.send("a", b"")) == [("a", 3)]
    assert gate.send("b", b"") == []
    assert gate.acked("a", 1) == []
    assert sequences(gate.ended(1)) == [("b", 1), ("b", 2)]
    assert gate.snapshot is COUNTS


def test_what_was_held_belongs_to_the_next_snapshot() -> None:
    gate = EventGate()
    gate.close(1)
    gate.send("a", b"")
    gate.acked("a", 1)
    gate.ended(1)
    assert gate.close(2) is WAITING
    assert gate.confirmed("a", 1) is COUNTS


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


def test_a_lost_event_fails_the_snapshot_that_counts_on_it() -> None:
    gate = EventGate()
    gate.send("a", b"")
    gate.close(1)
    assert gate.lost("a", 1) is FAILED
    assert gate.snapshot is FAILED
    gate.ended(1)
    assert gate.close(2) is COUNTS
    gate.acked("a", 2)
    gate.send("a", b"")
    # Sent after the snapshot: it does not count on this one.
    assert gate.lost("a", 2) is COUNTS
    assert gate.lost("nobody", 1) is COUNTS


def test_a_restarted_region_gets_nothing_of_before() -> None:  # R33
    gate = EventGate()
    gate.send("a", b"")
    gate.close(1)
    gate.send("a", b"")
    gate.send("b", b"")
    assert gate.reset("a") is FAILED
    assert sequences(gate.ended(1)) == [("b", 1)]
    assert gate.close(2) is WAITING  # for what was held back from b
    assert gate.reset("b") is FAILED
    gate.ended(2)
    assert gate.reset("nobody") is FAILED
    # Sequence numbers go on.
    assert sequences(gate.send("a", b"")) == [("a", 3)]


class Gate(RuleBasedStateMachine):
    """Each event carries the attempt before whose snapshot it was sent; regions check it."""

    regions = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.gate = EventGate()
        self.attempt = 0
        self.closed = False
        self.acked: set[str] = set()
        self.sent: dict[str, int] = dict.fromkeys("abc", 0)
        self.on_the_way: list[Deliver] = []
        self.before: set[tuple[str, int]] = set()
        self.arrived: dict[str, list[int]] = {region: [] for region in "abc"}
        self.failed = False

    def deliver(self, delivered: list[Deliver]) -> None:
        for deliver in delivered:
            # No event of after the snapshot reaches a region that has not taken its own.
            assert not (self.closed and deliver.region not in self.acked)
            assert deliver.event == f"{deliver.region} {deliver.sequence}".encode()
        self.on_the_way += delivered

    @rule(region=regions)
    def send(self, region: str) -> None:
        self.sent[region] += 1
        self.deliver(self.gate.send(region, f"{region} {self.sent[region]}".encode()))

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        self.attempt += 1
        self.closed, self.failed = True, False
        self.acked = set()
        self.before = {(deliver.region, deliver.sequence) for deliver in self.on_the_way}
        self.gate.close(self.attempt)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), lost=st.booleans())
    def arrive(self, data: st.DataObject, lost: bool) -> None:
        deliver = self.on_the_way.pop(data.draw(st.integers(0, len(self.on_the_way) - 1)))
        key = (deliver.region, deliver.sequence)
        if lost:
            self.failed |= self.closed and key in self.before
            self.gate.lost(*key)
        else:
            self.arrived[deliver.region].append(deliver.sequence)
            self.gate.confirmed(*key)
        self.before.discard(key)

    @rule(region=regions, ago=st.integers(0, 1))
    def ack(self, region: str, ago: int) -> None:
        if ago == 0 and self.closed:
            self.acked.add(region)
        self.deliver(self.gate.acked(region, self.attempt - ago))

    @rule(ago=st.integers(0, 1))
    def end(self, ago: int) -> None:
        if ago == 0:
            self.closed = False
            self.before = set()
        self.deliver(self.gate.ended(self.attempt - ago))
        if not self.closed:
            assert len(self.gate.send("a", self.next("a"))) == 1
            self.on_the_way.append(
                Deliver(region="a", sequence=self.sent["a"], event=b"a %d" % self.sent["a"])
            )

    def next(self, region: str) -> bytes:
        self.sent[region] += 1
        return f"{region} {self.sent[region]}".encode()

    @rule(region=regions)
    def reset(self, region: str) -> None:
        dropped = {key for key in self.before if key[0] == region}
        self.failed |= self.closed and bool(dropped)
        self.before -= dropped
        self.on_the_way = [deliver for deliver in self.on_the_way if deliver.region != region]
        self.gate.reset(region)

    @invariant()
    def a_snapshot_counts_iff_all_before_it_arrived(self) -> None:
        if self.closed:
            expected = FAILED if self.failed else WAITING if self.before else COUNTS
            assert self.gate.snapshot is expected
        for sequence in self.arrived.values():
            assert len(set(sequence)) == len(sequence)


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
    with pytest.raises(NotImplementedError, match="Plain does not support fallback"):
        plain.checkpoint_fallback(1, {"a": 0})
    plain.completed(1, {})
    plain.aborted(2)
    plain.close()


def test_what_is_job_wide_goes_by_the_oldest_region() -> None:  # R34
    assert job_wide(7, {"a": 7, "b": 4, "c": 7}) == 4
    assert job_wide(7, {}) == 7
