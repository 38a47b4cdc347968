"""The end of data: flushes, ends that count as barriers (R54, R61)."""

from __future__ import annotations

import pytest

from holdfast.regions.graph import Progress, RegionGraph, StageSpec
from support.regional.graph_cases import (
    Seen,
    by_number,
    graph_of,
    in_flight,
    outputs,
    rows,
    run,
    snapshot_of,
)

UNALIGNED = 0


def chain(timeout_ms: int | None = None) -> tuple[RegionGraph, Seen, Seen]:
    first, second = Seen(flush=[rows(100)]), Seen(flush=[rows(200)])
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", [second]), timeout_ms=timeout_ms)
    return graph, first, second


def test_the_end_comes_behind_all_data_and_a_flush_in_front_of_the_next_end() -> None:
    graph, first, second = chain()
    graph.feed(rows(1))
    graph.end()
    assert run(graph) is Progress.ENDED
    assert first.seen == [1]
    assert second.seen == [1, 100]
    assert outputs(graph) == [1, 100, 200]


def test_an_instance_flushes_once_when_all_its_channels_have_ended() -> None:
    split, last = [Seen(flush=[rows(100)]), Seen(flush=[rows(101)])], Seen(flush=[rows(200)])
    graph = graph_of(StageSpec("a", split, by_number), StageSpec("b", [last]))
    for number in (1, 3, 5):
        graph.feed(rows(number))
    graph.end()
    graph.end()
    while not split[1].flushed:
        assert last.flushed == 0
        graph.step(0)
    assert split[0].flushed == 1
    run(graph)
    assert (split[0].flushed, split[1].flushed, last.flushed) == (1, 1, 1)
    assert outputs(graph)[-1] == 200


def test_a_flush_is_taken_without_room() -> None:
    first, second = Seen(flush=[rows(100), rows(101), rows(102)]), Seen()
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", [second]), capacity=1)
    graph.feed(rows(1))
    graph.end()
    run(graph)
    assert second.seen == [1, 100, 101, 102]


def test_nothing_is_fed_after_the_end() -> None:
    graph, _, _ = chain()
    graph.end()
    assert graph.room() == 0
    with pytest.raises(RuntimeError, match="after the end"):
        graph.feed(rows(1))


def test_a_checkpoint_begun_after_the_end_contains_every_flush() -> None:
    graph, _, _ = chain()
    graph.feed(rows(1))
    graph.end()
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert snapshot.states == {("a", 0): (1,), ("b", 0): (1, 100)}
    assert snapshot.finished == {("a", 0), ("b", 0)}
    assert [(o.precedes(1), o.precedes(2)) for o in graph.take_output()] == [(True, True)] * 3


def test_a_checkpoint_begun_before_the_end_contains_no_flush() -> None:
    graph, _, _ = chain()
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    graph.end()
    snapshot = snapshot_of(graph)
    assert snapshot.states == {("a", 0): (1,), ("b", 0): (1,)}
    assert snapshot.finished == frozenset()
    assert run(graph) is Progress.ENDED
    assert outputs(graph) == [1, 100, 200]


def test_every_later_attempt_completes_after_the_end() -> None:
    graph, first, second = chain()
    graph.end()
    assert run(graph) is Progress.ENDED
    for checkpoint in (1, 2):
        graph.barrier(checkpoint, 0, 0)
        snapshot = snapshot_of(graph)
        assert snapshot.aligned
        assert snapshot.finished == {("a", 0), ("b", 0)}
    assert graph.step(0) is Progress.ENDED
    assert (first.flushed, second.flushed) == (1, 1)


def test_the_end_of_one_channel_and_the_barrier_of_another_align() -> None:
    """split.0 has flushed and ended when the attempt begins, split.1 has rows left."""
    split, last = [Seen(flush=[rows(100)]), Seen(flush=[rows(101)])], Seen()
    graph = graph_of(StageSpec("a", split, by_number), StageSpec("b", [last]))
    for number in (1, 3):
        graph.feed(rows(number))
    graph.end()
    while not split[0].flushed:
        graph.step(0)
    assert split[1].flushed == 0
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert snapshot.aligned
    assert snapshot.finished == {("a", 0), ("a", 1), ("b", 0)}
    assert sorted(last.seen) == [1, 3, 100, 101]


def test_an_end_behind_a_barrier_ends_the_channel_once() -> None:
    graph, first, _ = chain()
    graph.barrier(1, 0, 0)
    graph.end()
    graph.step(0)
    assert first.flushed == 0
    run(graph)
    assert first.flushed == 1
    snapshot = graph.take_snapshot()
    assert snapshot is not None
    assert snapshot.finished == frozenset()


def test_an_end_with_no_data_in_front_of_it_is_taken_before_an_unaligned_snapshot() -> None:
    graph, _, _ = chain(UNALIGNED)
    graph.end()
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert snapshot.finished == {("a", 0)}
    # What a flushed is on its way to b, and the barrier overtakes it.
    assert in_flight(snapshot) == {"a.0->b.0": [100]}
    assert snapshot.states["b", 0] == ()


def test_a_barrier_overtakes_data_in_front_of_an_end() -> None:
    graph, first, _ = chain(UNALIGNED)
    graph.feed(rows(1))
    graph.end()
    graph.barrier(1, 0, 0)
    snapshot = snapshot_of(graph)
    assert in_flight(snapshot) == {"source->a.0": [1]}
    assert snapshot.finished == frozenset()
    assert first.flushed == 0
    assert run(graph) is Progress.ENDED
    assert outputs(graph) == [1, 100, 200]


def test_a_newer_barrier_does_not_take_back_an_end() -> None:
    graph, first, second = chain(UNALIGNED)
    graph.feed(rows(1))
    graph.end()
    graph.barrier(1, 0, 0)
    graph.step(0)
    assert graph.barrier(2, 0, 0)
    assert run(graph) is Progress.ENDED
    assert (first.flushed, second.flushed) == (1, 1)
