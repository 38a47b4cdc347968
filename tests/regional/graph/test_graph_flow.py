"""How batches move through a graph: routes, order, bounds, errors (R50)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from holdfast.regions.graph import SOURCE, Progress, RegionGraph, StageSpec
from support.regional.graph_cases import (
    Seen,
    by_number,
    channel_data,
    graph_of,
    numbers,
    outputs,
    rows,
    run,
    to_all,
)


def test_rows_pass_all_stages_in_order() -> None:
    first, second = Seen(), Seen()
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", [second]))
    graph.feed(rows(1, 2))
    graph.feed(rows(3))
    assert run(graph) is Progress.IDLE
    assert first.seen == second.seen == outputs(graph) == [1, 2, 3]
    assert outputs(graph) == []


def test_one_step_is_one_batch_of_one_instance() -> None:
    first, second = Seen(), Seen()
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", [second]))
    graph.feed(rows(1))
    assert graph.step(0) is Progress.WORKED
    assert (first.seen, second.seen) == ([1], [])
    assert graph.step(0) is Progress.WORKED
    assert second.seen == [1]
    assert graph.step(0) is Progress.IDLE


def test_a_route_splits_rows_over_the_instances() -> None:
    instances = [Seen(), Seen(), Seen()]
    graph = graph_of(StageSpec("a", instances, by_number))
    graph.feed(rows(0, 1, 2, 3, 4))
    run(graph)
    assert [instance.seen for instance in instances] == [[0, 3], [1, 4], [2]]


def test_every_instance_is_joined_with_every_instance_of_the_next_routed_stage() -> None:
    last = [Seen(), Seen(), Seen()]
    graph = graph_of(StageSpec("a", [Seen(), Seen()], by_number), StageSpec("b", last, by_number))
    graph.feed(rows(*range(12)))
    run(graph)
    assert [sorted(instance.seen) for instance in last] == [
        [0, 3, 6, 9],
        [1, 4, 7, 10],
        [2, 5, 8, 11],
    ]


def test_a_stage_without_a_route_reads_from_the_same_instance_in_front_of_it() -> None:
    last = [Seen(), Seen()]
    graph = graph_of(StageSpec("a", [Seen(), Seen()], by_number), StageSpec("b", last))
    graph.feed(rows(0, 1, 2, 3))
    run(graph)
    assert [instance.seen for instance in last] == [[0, 2], [1, 3]]


def test_a_single_instance_without_a_route_reads_from_all_in_front_of_it() -> None:
    last = Seen()
    graph = graph_of(StageSpec("a", [Seen(), Seen()], by_number), StageSpec("b", [last]))
    graph.feed(rows(0, 1, 2, 3))
    run(graph)
    assert sorted(last.seen) == [0, 1, 2, 3]


def test_channels_take_turns() -> None:
    graph = graph_of(StageSpec("a", [Seen(), Seen()], by_number))
    for batch in (rows(0), rows(2), rows(4), rows(1), rows(3), rows(5)):
        graph.feed(batch)
    run(graph)
    assert outputs(graph) == [0, 1, 2, 3, 4, 5]


def test_batches_without_rows_do_not_travel() -> None:
    operator = Seen(emit=lambda batch: [rows(), batch, rows()])
    last = Seen(emit=lambda batch: [rows()])
    graph = graph_of(StageSpec("a", [operator]), StageSpec("b", [last]), capacity=1)
    graph.feed(rows())
    assert graph.room() == 1
    graph.feed(rows(1))
    run(graph)
    assert last.seen == [1]
    assert graph.take_output() == []


# --- bounds -------------------------------------------------------------------------------------


def test_the_source_has_room_until_its_fullest_channel_is_full() -> None:
    graph = graph_of(StageSpec("a", [Seen(), Seen()], by_number), capacity=2)
    assert graph.room() == 2
    graph.feed(rows(1))
    assert graph.room() == 1
    graph.feed(rows(0))
    assert graph.room() == 1
    graph.feed(rows(3))
    assert graph.room() == 0
    with pytest.raises(RuntimeError, match="without room"):
        graph.feed(rows(2))
    run(graph)
    assert graph.room() == 2


def test_an_instance_waits_until_the_channel_behind_it_has_room() -> None:
    """A channel holds at most its capacity less one, and what one call emits."""
    first, second = Seen(emit=lambda batch: [batch, batch, batch]), Seen()
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", [second]), capacity=2)
    for number in range(2):
        graph.feed(rows(number))
    seen = []
    while graph.step(0) is Progress.WORKED:
        seen.append((len(first.seen), len(second.seen)))
    waiting = [3 * emitted - consumed for emitted, consumed in seen]
    assert max(waiting) == 2 - 1 + 3
    assert second.seen == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("full", [0, 1])
def test_one_full_channel_holds_back_an_instance_that_writes_to_several(full: int) -> None:
    first, last = Seen(), [Seen(), Seen()]
    graph = graph_of(StageSpec("a", [first]), StageSpec("b", last, by_number), capacity=1)
    graph.restore([channel_data(f"a.0->b.{full}", rows(full)), channel_data(SOURCE, rows(4, 5))])
    # It is a's turn, and the other channel has room.
    graph.step(0)
    assert (first.seen, last[full].seen) == ([], [full])
    graph.step(0)
    assert first.seen == [4, 5]


def test_rows_behind_a_barrier_fill_the_channels_so_the_source_waits() -> None:
    graph = graph_of(StageSpec("a", [Seen()]), capacity=1)
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    assert graph.room() == 0
    graph.step(0)
    assert graph.room() == 1
    graph.feed(rows(2))
    assert graph.room() == 0


# --- errors -------------------------------------------------------------------------------------


def failing(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    yield batch
    raise OSError("the operator failed")


def test_an_operator_that_fails_loses_the_graph() -> None:
    graph = graph_of(StageSpec("a", [Seen(emit=failing)]), StageSpec("b", [Seen()]))
    graph.feed(rows(1))
    graph.barrier(1, 0, 0)
    with pytest.raises(OSError, match="the operator failed"):
        graph.step(0)
    for use in (
        lambda: graph.step(0),
        lambda: graph.feed(rows(2)),
        lambda: graph.barrier(2, 0, 0),
        lambda: graph.end(),
        lambda: graph.take_snapshot(),
        lambda: graph.restore([]),
    ):
        with pytest.raises(RuntimeError, match="the graph is lost"):
            use()
    assert graph.take_output() == []


def test_a_route_with_the_wrong_number_of_parts_is_an_error_that_names_the_stage() -> None:
    graph = graph_of(StageSpec("split", [Seen(), Seen()], lambda batch, _: [batch]))
    with pytest.raises(ValueError, match=r"route of stage split: expected 2 parts.* found 1"):
        graph.feed(rows(1))
    with pytest.raises(RuntimeError, match="the graph is lost"):
        graph.feed(rows(1))


def test_stages_that_cannot_be_joined_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one stage"):
        graph_of()
    with pytest.raises(ValueError, match="different names, found a, a"):
        graph_of(StageSpec("a", [Seen()]), StageSpec("a", [Seen()]))
    with pytest.raises(ValueError, match=r"stage b: expected one instance or 3.* found 2"):
        graph_of(StageSpec("a", [Seen(), Seen(), Seen()], to_all), StageSpec("b", [Seen(), Seen()]))
    with pytest.raises(ValueError, match=r"stage a: expected one instance or 1.* found 2"):
        graph_of(StageSpec("a", [Seen(), Seen()]))


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="stage a: expected at least one instance"):
        StageSpec("a", [])
    for name in ("", "a->b"):
        with pytest.raises(ValueError, match="expected a stage name"):
            StageSpec(name, [Seen()])
    stages = [StageSpec("a", [Seen()])]
    with pytest.raises(ValueError, match="timeout >= 0 ms, found -1"):
        RegionGraph(stages, capacity_batches=1, timeout_ms=-1, max_in_flight_bytes=0)
    with pytest.raises(ValueError, match="capacity_batches >= 1, found 0"):
        RegionGraph(stages, capacity_batches=0, timeout_ms=None, max_in_flight_bytes=0)
    with pytest.raises(ValueError, match="max_in_flight_bytes >= 0, found -1"):
        RegionGraph(stages, capacity_batches=1, timeout_ms=None, max_in_flight_bytes=-1)


def test_the_same_calls_lead_to_the_same_order() -> None:
    def order() -> list[int]:
        graph = graph_of(
            StageSpec("a", [Seen(), Seen()], by_number),
            StageSpec("b", [Seen(), Seen(), Seen()], by_number),
            capacity=2,
        )
        for start in range(0, 12, 4):
            graph.feed(rows(*range(start, start + 4)))
            graph.step(0)
            graph.step(0)
        run(graph)
        return numbers(output.batch for output in graph.take_output())

    assert order() == order()
