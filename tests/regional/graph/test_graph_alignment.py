"""Barriers that align, time out, overtake, and end early (R51, R52, R53, R58)."""

from __future__ import annotations

from holdfast.regions.graph import Progress, RegionGraph, StageSpec
from support.regional.graph_cases import (
    Seen,
    by_number,
    due_ms,
    graph_of,
    in_flight,
    numbers,
    outputs,
    rows,
    run,
    snapshot_of,
)

UNALIGNED = 0
TIMEOUT_10 = 10


def join(
    timeout_ms: int | None, *, max_in_flight_bytes: int = 1 << 30
) -> tuple[RegionGraph, list[Seen], Seen]:
    """Two instances that write to one."""
    split, last = [Seen(), Seen()], Seen()
    graph = graph_of(
        StageSpec("split", split, by_number),
        StageSpec("join", [last]),
        timeout_ms=timeout_ms,
        max_in_flight_bytes=max_in_flight_bytes,
    )
    return graph, split, last


# --- aligned ------------------------------------------------------------------------------------


def test_an_aligned_snapshot_holds_exactly_the_rows_in_front_of_the_barrier() -> None:
    graph, split, _ = join(None)
    for batch in (rows(0), rows(1), rows(2)):
        graph.feed(batch)
    assert graph.barrier(7, 0, 0)
    for batch in (rows(4), rows(3)):
        graph.feed(batch)
    snapshot = snapshot_of(graph, now_ms=1_000_000)
    assert snapshot.checkpoint == 7
    assert snapshot.states["split", 0] == (0, 2)
    assert snapshot.states["split", 1] == (1,)
    assert sorted(snapshot.states["join", 0]) == [0, 1, 2]  # type: ignore[call-overload]
    assert snapshot.aligned
    assert snapshot.in_flight == ()
    run(graph)
    assert split[0].seen == [0, 2, 4]


def test_a_channel_whose_barrier_came_is_blocked_until_the_others_have_theirs() -> None:
    graph, split, last = join(None)
    for number in (1, 3, 5):
        graph.feed(rows(number))
    graph.barrier(1, 0, 0)
    for number in (0, 2, 4):
        graph.feed(rows(number))
    # split.0 has no row in front of its barrier, so its rows reach join while split.1 has some.
    while len(split[0].seen) < 2:
        graph.step(0)
    assert len(split[1].seen) < 3
    assert all(number % 2 for number in last.seen)
    snapshot = snapshot_of(graph)
    assert snapshot.states["join", 0] == (1, 3, 5)


def test_snapshots_go_before_data() -> None:
    graph, split, _ = join(None)
    graph.barrier(1, 0, 0)
    graph.feed(rows(0, 1))
    for _ in range(3):
        assert graph.take_snapshot() is None
        graph.step(0)
    assert graph.take_snapshot() is not None
    assert [instance.seen for instance in split] == [[], []]


def test_an_aligned_barrier_never_overtakes_however_late_it_is() -> None:
    graph, _, last = join(None)
    graph.feed(rows(0, 1))
    graph.barrier(1, 0, 10**9)
    assert due_ms(graph) is None
    assert snapshot_of(graph, now_ms=10**12).aligned
    assert sorted(last.seen) == [0, 1]


def test_an_attempt_can_be_aligned_whatever_the_mode_is() -> None:
    graph, _, last = join(UNALIGNED)
    graph.feed(rows(0, 1))
    graph.barrier(1, 0, 10**9, aligned=True)
    assert due_ms(graph) is None
    assert snapshot_of(graph, now_ms=10**12).in_flight == ()
    assert sorted(last.seen) == [0, 1]


# --- unaligned ----------------------------------------------------------------------------------


def test_an_unaligned_barrier_captures_everything_queued_once() -> None:
    graph, split, last = join(UNALIGNED)
    graph.feed(rows(0))
    graph.feed(rows(1))
    graph.step(0)
    graph.feed(rows(2))
    graph.barrier(1, 0, 0)
    graph.feed(rows(4))
    snapshot = snapshot_of(graph)
    assert not snapshot.aligned
    assert in_flight(snapshot) == {
        "source->split.0": [2],
        "source->split.1": [1],
        "split.0->join.0": [0],
    }
    assert snapshot.states == {("split", 0): (0,), ("split", 1): (), ("join", 0): ()}
    run(graph)
    assert split[0].seen == [0, 2, 4]
    assert sorted(last.seen) == [0, 1, 2, 4]


def test_what_the_source_sent_is_input_and_what_an_operator_sent_is_output() -> None:
    graph, _, _ = join(UNALIGNED)
    graph.feed(rows(0))
    graph.step(0)
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    kinds = {data.channel: data.kind for data in snapshot_of(graph).in_flight}
    assert kinds == {"source->split.1": "input", "split.0->join.0": "output"}


def test_an_unaligned_snapshot_takes_one_step_per_instance_and_no_row_moves() -> None:
    graph, split, last = join(UNALIGNED)
    graph.feed(rows(0, 1))
    graph.step(0)
    graph.barrier(1, 0, 0)
    seen = [list(instance.seen) for instance in (*split, last)]
    for _ in range(3):
        assert graph.take_snapshot() is None
        assert graph.step(0) is Progress.WORKED
    assert graph.take_snapshot() is not None
    assert [instance.seen for instance in (*split, last)] == seen


def test_rows_fed_while_the_barrier_overtakes_are_not_captured() -> None:
    graph, _, _ = join(UNALIGNED)
    graph.feed(rows(0))
    graph.barrier(1, 0, 0)
    graph.step(0)
    graph.feed(rows(1))
    graph.feed(rows(2))
    assert in_flight(snapshot_of(graph)) == {"source->split.0": [0]}


def test_outputs_behind_the_snapshot_of_their_instance_belong_to_the_next_checkpoint() -> None:
    last = [Seen(), Seen()]
    graph = graph_of(StageSpec("a", last, by_number))
    graph.feed(rows(1))
    graph.feed(rows(3))
    graph.barrier(5, 0, 0)
    graph.feed(rows(0))
    graph.feed(rows(2))
    run(graph)
    found = graph.take_output()
    assert {numbers([o.batch])[0]: o.precedes(5) for o in found} == {
        0: False,
        1: True,
        2: False,
        3: True,
    }
    assert {o.follows for o in found if o.instance == ("a", 0)} == {5}
    assert {o.follows for o in found if o.instance == ("a", 1)} == {None}
    assert all(output.precedes(6) for output in found)


def test_outputs_behind_an_attempt_that_ends_early_precede_the_next_one() -> None:
    graph = graph_of(StageSpec("a", [Seen()]))
    graph.barrier(1, 0, 0)
    graph.step(0)
    graph.feed(rows(1))
    run(graph)
    graph.barrier(2, 0, 0)
    (output,) = graph.take_output()
    assert output.precedes(2)


# --- timeout ------------------------------------------------------------------------------------


def test_the_timeout_counts_from_when_the_coordinator_created_the_barrier() -> None:
    graph, split, _ = join(TIMEOUT_10)
    for number in (0, 2, 1):
        graph.feed(rows(number))
    graph.barrier(1, created_ms=100, now_ms=105)
    assert due_ms(graph) == 110
    graph.step(109)
    assert due_ms(graph) == 110
    graph.step(110)
    assert due_ms(graph) is None
    assert [instance.seen for instance in split] == [[0], []]
    snapshot = snapshot_of(graph, now_ms=110)
    assert not snapshot.aligned
    assert in_flight(snapshot) == {
        "source->split.0": [2],
        "source->split.1": [1],
        "split.0->join.0": [0],
    }


def test_a_barrier_from_a_clock_ahead_of_ours_times_out_from_now() -> None:
    graph, _, _ = join(TIMEOUT_10)
    graph.feed(rows(0))
    graph.barrier(1, created_ms=10**6, now_ms=100)
    assert due_ms(graph) == 110


def test_a_barrier_that_is_overdue_when_it_is_injected_overtakes_at_once() -> None:
    graph, split, _ = join(TIMEOUT_10)
    graph.feed(rows(0))
    graph.barrier(1, created_ms=0, now_ms=1000)
    assert in_flight(snapshot_of(graph, now_ms=1000)) == {"source->split.0": [0]}
    assert split[0].seen == []


def test_the_timeout_fires_once() -> None:
    graph, _, last = join(TIMEOUT_10)
    graph.feed(rows(0))
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    graph.step(10)
    graph.feed(rows(2))
    snapshot = snapshot_of(graph, now_ms=99)
    assert in_flight(snapshot) == {"source->split.0": [0], "source->split.1": [1]}
    assert sorted(snapshot.states) == [("join", 0), ("split", 0), ("split", 1)]
    run(graph, now_ms=99)
    assert sorted(last.seen) == [0, 1, 2]


def test_an_alignment_that_is_in_time_has_no_timer_afterwards() -> None:
    graph, _, _ = join(TIMEOUT_10)
    graph.barrier(1, 0, 0)
    for _ in range(3):
        graph.step(0)
    assert due_ms(graph) is None
    assert snapshot_of(graph).aligned


def test_a_last_barrier_that_is_late_but_overtakes_nothing_leaves_the_checkpoint_aligned() -> None:
    graph, _, last = join(TIMEOUT_10)
    graph.feed(rows(0, 1))
    graph.barrier(1, 0, 0)
    while len(last.seen) < 2:
        graph.step(9)
    assert due_ms(graph) == 10
    snapshot = snapshot_of(graph, now_ms=500)
    assert snapshot.aligned
    assert snapshot.in_flight == ()


def test_data_behind_a_barrier_is_not_captured_when_the_alignment_times_out() -> None:
    """join has the barrier of split.0, with data behind it, when the attempt times out."""
    graph, split, last = join(TIMEOUT_10)
    for number in (1, 3):
        graph.feed(rows(number))
    graph.barrier(1, 0, 0)
    for number in (0, 2):
        graph.feed(rows(number))
    while not last.seen:
        graph.step(0)
    assert [instance.seen for instance in split] == [[0], [1]]
    snapshot = snapshot_of(graph, now_ms=10)
    assert not snapshot.aligned
    assert in_flight(snapshot) == {"source->split.1": [3]}
    assert snapshot.states["join", 0] == (1,)
    assert snapshot.states["split", 0] == ()
    run(graph)
    assert sorted(outputs(graph)) == [0, 1, 2, 3]


def test_a_barrier_in_the_middle_of_a_queue_captures_what_is_in_front_of_it() -> None:
    graph = graph_of(StageSpec("a", [Seen()]), timeout_ms=TIMEOUT_10)
    graph.feed(rows(1))
    graph.feed(rows(2))
    graph.barrier(1, 0, 0)
    graph.feed(rows(3))
    graph.step(0)
    assert in_flight(snapshot_of(graph, now_ms=10)) == {"source->a.0": [2]}
    run(graph)
    assert outputs(graph) == [1, 2, 3]


# --- attempts that end --------------------------------------------------------------------------


def test_a_newer_barrier_ends_the_open_attempt_and_unblocks_its_channels() -> None:
    graph, _, last = join(None)
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    graph.feed(rows(0))
    graph.step(0)  # split.0 has its snapshot of attempt 1, split.1 has not
    assert graph.barrier(2, 0, 0)
    snapshot = snapshot_of(graph)
    assert snapshot.checkpoint == 2
    assert snapshot.states["split", 0] == (0,)
    assert sorted(last.seen) == [0, 1]


def test_a_newer_barrier_while_one_overtakes_loses_no_row() -> None:
    graph, _, last = join(UNALIGNED)
    for number in range(6):
        graph.feed(rows(number))
    graph.step(0)
    graph.barrier(1, 0, 0)
    graph.step(0)
    graph.step(0)
    assert graph.barrier(2, 0, 0)
    assert snapshot_of(graph).checkpoint == 2
    run(graph)
    assert [number for number in last.seen if number % 2] == [1, 3, 5]
    assert [number for number in last.seen if number % 2 == 0] == [0, 2, 4]


def test_barriers_of_ended_attempts_are_dropped() -> None:
    graph, _, _ = join(None)
    assert graph.barrier(3, 0, 0)
    assert not graph.barrier(3, 0, 0)
    assert not graph.barrier(2, 0, 0)
    assert snapshot_of(graph).checkpoint == 3
    assert not graph.barrier(3, 0, 0)
    assert graph.step(0) is Progress.IDLE


def test_a_complete_snapshot_that_was_not_taken_goes_with_its_attempt() -> None:
    graph, _, _ = join(None)
    graph.barrier(1, 0, 0)
    run(graph)
    graph.barrier(2, 0, 0)
    assert graph.take_snapshot() is None
    assert snapshot_of(graph).checkpoint == 2


def test_a_snapshot_is_handed_out_once() -> None:
    graph, _, _ = join(None)
    graph.barrier(1, 0, 0)
    snapshot_of(graph)
    assert graph.take_snapshot() is None


# --- the bound of in-flight data ----------------------------------------------------------------


def test_a_barrier_that_would_capture_too_much_aligns_until_the_rest_fits() -> None:
    row_bytes = rows(1).nbytes
    graph = graph_of(
        StageSpec("a", [Seen()]), timeout_ms=UNALIGNED, max_in_flight_bytes=2 * row_bytes
    )
    for number in range(5):
        graph.feed(rows(number))
    graph.barrier(1, 0, 0)
    graph.feed(rows(5))
    snapshot = snapshot_of(graph)
    assert snapshot.states["a", 0] == (0, 1, 2)
    assert in_flight(snapshot) == {"source->a.0": [3, 4]}
    assert sum(data.nbytes for data in snapshot.in_flight) == 2 * row_bytes


def test_the_bound_counts_all_channels_together() -> None:
    row_bytes = rows(1).nbytes
    graph, _, _ = join(UNALIGNED, max_in_flight_bytes=2 * row_bytes)
    for number in (0, 2):
        graph.feed(rows(number))
    graph.step(0)
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert not snapshot.aligned
    assert sum(data.nbytes for data in snapshot.in_flight) == 2 * row_bytes


def test_without_room_for_in_flight_data_every_attempt_aligns() -> None:
    graph, _, last = join(UNALIGNED, max_in_flight_bytes=0)
    graph.feed(rows(0, 1))
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert snapshot.aligned
    assert sorted(last.seen) == [0, 1]
    assert snapshot.states["join", 0] == tuple(last.seen)


def test_rows_behind_the_barrier_do_not_count_for_the_bound() -> None:
    graph = graph_of(
        StageSpec("a", [Seen()]), timeout_ms=UNALIGNED, max_in_flight_bytes=rows(1).nbytes
    )
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    for number in range(2, 8):
        graph.feed(rows(number))
    assert in_flight(snapshot_of(graph)) == {"source->a.0": [1]}


def test_what_instances_with_their_snapshot_have_queued_does_not_count_for_the_bound() -> None:
    graph, _, _ = join(UNALIGNED, max_in_flight_bytes=rows(1).nbytes)
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    for number in (0, 2, 4):
        graph.feed(rows(number))
    graph.step(0)  # split.0, which has nothing in front of the barrier
    assert in_flight(snapshot_of(graph)) == {"source->split.1": [1]}
