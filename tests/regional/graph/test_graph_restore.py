"""In-flight data that is put back (R55) or divided over other channels (R57)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from holdfast.regions.graph import (
    SOURCE,
    ChannelData,
    RegionGraph,
    StageSpec,
    redistribute,
)
from support.regional.graph_cases import (
    Seen,
    by_number,
    channel_data,
    graph_of,
    in_flight,
    numbers,
    outputs,
    rows,
    run,
    snapshot_of,
)


def chain(*, capacity: int = 10) -> tuple[RegionGraph, Seen, Seen]:
    first, second = Seen(), Seen()
    graph = graph_of(
        StageSpec("a", [first]),
        StageSpec("b", [second]),
        capacity=capacity,
        timeout_ms=0,
    )
    return graph, first, second


def test_restored_data_goes_to_its_channel_in_front_of_new_data() -> None:
    graph, first, second = chain()
    graph.restore(
        [
            channel_data("source->a.0", rows(2), rows(3)),
            channel_data("a.0->b.0", rows(0), rows(1), kind="output"),
        ]
    )
    run(graph)
    graph.feed(rows(4))
    run(graph)
    assert first.seen == [2, 3, 4]
    assert second.seen == outputs(graph) == [0, 1, 2, 3, 4]


def test_new_data_waits_until_what_was_restored_is_through() -> None:
    graph, _, second = chain()
    graph.restore([channel_data("source->a.0", rows(1))])
    while second.seen != [1]:
        assert graph.room() == 0
        with pytest.raises(RuntimeError, match="without room"):
            graph.feed(rows(2))
        graph.step(0)
    assert graph.room() == 10


def test_rows_nearest_the_end_go_first_whatever_channel_they_come_in() -> None:  # R57
    firsts, last = [Seen(), Seen()], Seen()
    graph = graph_of(StageSpec("a", firsts, by_number), StageSpec("b", [last]))
    graph.restore(
        [
            channel_data("source->a.0", rows(6), rows(8)),
            channel_data("source->a.1", rows(5), rows(7)),
            channel_data("a.0->b.0", rows(1), rows(2), rows(3), rows(4), kind="output"),
        ]
    )
    run(graph)
    assert last.seen[:4] == [1, 2, 3, 4]
    assert [first.seen for first in firsts] == [[6, 8], [5, 7]]
    assert sorted(last.seen[4:]) == [5, 6, 7, 8]


def test_input_comes_before_output_and_rows_of_the_source_last() -> None:
    graph, first, second = chain()
    graph.restore(
        [
            channel_data(SOURCE, rows(15)),
            channel_data("a.0->b.0", rows(3), kind="output"),
            channel_data("a.0->b.0", rows(1)),
            channel_data("source->a.0", rows(13)),
            channel_data("a.0->b.0", rows(4), kind="output"),
            channel_data("a.0->b.0", rows(2)),
            channel_data("source->a.0", rows(14)),
        ]
    )
    run(graph)
    assert first.seen == [13, 14, 15]
    assert second.seen == [1, 2, 3, 4, 13, 14, 15]


def test_rows_of_the_source_are_split_over_the_first_stage() -> None:
    instances = [Seen(), Seen()]
    graph = graph_of(StageSpec("a", instances, by_number))
    graph.restore([channel_data("source->a.0", rows(0)), channel_data(SOURCE, rows(1, 2, 3))])
    run(graph)
    assert [instance.seen for instance in instances] == [[0, 2], [1, 3]]


def test_more_than_a_channel_holds_can_be_restored() -> None:
    graph, first, _ = chain(capacity=1)
    graph.restore([channel_data("source->a.0", rows(1), rows(2), rows(3))])
    assert graph.room() == 0
    run(graph)
    assert first.seen == [1, 2, 3]
    assert graph.room() == 1


def test_restored_data_can_be_captured_again_at_once() -> None:
    graph, _, _ = chain()
    data = [
        channel_data("source->a.0", rows(2), rows(3)),
        channel_data("a.0->b.0", rows(1), kind="output"),
    ]
    graph.restore(data)
    graph.barrier(1, 0, 0)
    assert snapshot_of(graph).in_flight == tuple(data)


def test_batches_without_rows_are_not_restored() -> None:
    graph, _, _ = chain()
    graph.restore([channel_data("source->a.0", rows(), rows(1), rows())])
    graph.barrier(1, 0, 0)
    assert in_flight(snapshot_of(graph)) == {"source->a.0": [1]}


def test_a_channel_that_is_not_in_the_graph_is_refused() -> None:
    graph, first, _ = chain()
    with pytest.raises(
        ValueError, match=r"channel a.1->b.0: expected one of source, source->a.0, a.0->b.0"
    ):
        graph.restore([channel_data("source->a.0", rows(1)), channel_data("a.1->b.0", rows(2))])
    run(graph)
    assert first.seen == []


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: graph.feed(rows(1)),
        lambda graph: graph.step(0),
        lambda graph: graph.barrier(1, 0, 0),
        lambda graph: graph.end(),
        lambda graph: graph.restore([]),
    ],
)
def test_restoring_comes_before_anything_else(use: Callable[[RegionGraph], object]) -> None:
    graph, _, _ = chain()
    use(graph)
    with pytest.raises(RuntimeError, match="restore comes before anything else"):
        graph.restore([])


# --- other channels -----------------------------------------------------------------------------


def by_last_digit(channel: str, batch: pa.RecordBatch) -> Sequence[tuple[str, pa.RecordBatch]]:
    found: dict[str, list[int]] = {}
    for number in numbers([batch]):
        found.setdefault(f"{channel}{number % 10}", []).append(number)
    return [(to, rows(*part)) for to, part in found.items()]


def found_in(data: Sequence[ChannelData]) -> list[tuple[str, str, list[int]]]:
    return [(entry.channel, entry.kind, numbers(entry.batches)) for entry in data]


def test_every_row_goes_to_one_channel_in_order() -> None:
    divided = redistribute(
        [
            channel_data("source->a.", rows(1, 2, 11), rows(21)),
            channel_data("a.0->b.", rows(3, 31), kind="output"),
            channel_data("source->a.", rows(41)),
        ],
        by_last_digit,
    )
    assert found_in(divided) == [
        ("source->a.1", "input", [1, 11, 21]),
        ("source->a.2", "input", [2]),
        ("a.0->b.3", "output", [3]),
        ("a.0->b.1", "output", [31]),
        ("source->a.1", "input", [41]),
    ]


def test_no_data_is_for_no_channel() -> None:
    assert redistribute([channel_data("source->a.0"), channel_data(SOURCE, rows())], same) == ()
    assert redistribute(
        [channel_data(SOURCE, rows(1))], lambda channel, batch: [("x", batch), ("y", rows())]
    ) == (channel_data("x", rows(1)),)


def same(channel: str, batch: pa.RecordBatch) -> Sequence[tuple[str, pa.RecordBatch]]:
    return [(channel, batch)]


@pytest.mark.parametrize("copies", [0, 2])
def test_a_function_that_loses_or_doubles_rows_is_refused(copies: int) -> None:
    with pytest.raises(
        ValueError, match=f"source->a.0: expected .* its 2 rows, found {2 * copies}"
    ):
        redistribute(
            [channel_data("source->a.0", rows(1, 2))],
            lambda channel, batch: [("x", batch)] * copies,
        )
