"""In-flight data that is put back (R55) or divided among other regions (R57)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from graph_cases import (
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
from holdfast.regions.graph import (
    SOURCE,
    AlignmentMode,
    ChannelData,
    RegionGraph,
    StageSpec,
    redistribute,
)


def chain(*, capacity: int = 10) -> tuple[RegionGraph, Seen, Seen]:
    first, second = Seen(), Seen()
    graph = graph_of(
        StageSpec("a", [first]),
        StageSpec("b", [second]),
        capacity=capacity,
        mode=AlignmentMode.unaligned(),
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
    graph.feed(rows(4))
    run(graph)
    assert first.seen == [2, 3, 4]
    assert second.seen == outputs(graph) == [0, 1, 2, 3, 4]


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


# --- other regions ------------------------------------------------------------------------------


def by_last_digit(batch: pa.RecordBatch) -> Sequence[tuple[str, pa.RecordBatch]]:
    found: dict[str, list[int]] = {}
    for number in numbers([batch]):
        found.setdefault(str(number % 10), []).append(number)
    return [(region, rows(*part)) for region, part in found.items()]


def found_in(data: Sequence[ChannelData]) -> list[tuple[str, str, list[int]]]:
    return [(entry.channel, entry.kind, numbers(entry.batches)) for entry in data]


def test_every_row_goes_to_the_region_it_is_in_now_in_order() -> None:
    regions = redistribute(
        [
            channel_data("source->a.0", rows(1, 2, 11), rows(21)),
            channel_data("a.0->b.0", rows(3, 31), kind="output"),
            channel_data(SOURCE, rows(41)),
        ],
        by_last_digit,
    )
    assert {region: found_in(data) for region, data in regions.items()} == {
        "1": [
            ("source->a.0", "input", [1, 11, 21]),
            ("a.0->b.0", "output", [31]),
            (SOURCE, "input", [41]),
        ],
        "2": [("source->a.0", "input", [2])],
        "3": [("a.0->b.0", "output", [3])],
    }


def test_no_data_is_for_no_region() -> None:
    assert (
        redistribute([channel_data("source->a.0"), channel_data(SOURCE, rows())], by_last_digit)
        == {}
    )
    assert redistribute(
        [channel_data(SOURCE, rows(1))], lambda batch: [("x", batch), ("y", rows())]
    ) == {"x": (channel_data(SOURCE, rows(1)),)}


@pytest.mark.parametrize("copies", [0, 2])
def test_a_region_function_that_loses_or_doubles_rows_is_refused(copies: int) -> None:
    with pytest.raises(
        ValueError, match=f"source->a.0: expected .* its 2 rows, found {2 * copies}"
    ):
        redistribute(
            [channel_data("source->a.0", rows(1, 2))], lambda batch: [("x", batch)] * copies
        )
