"""Random histories of random graphs: no row twice, none lost, order kept (R50 to R55, R58, R61)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.regional.graph_histories import History, Layout, resumed

# What a history does, with its arguments.
Event = tuple[str, int, int, bool]

TIMEOUTS_MS = st.sampled_from([6, 0, 12, None])


KINDS: list[str | None] = ["hash", "all", "hash", "last", None]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    stages: list[tuple[int, str | None]] = []
    before = 1
    for _ in range(draw(st.sampled_from([3, 2, 4, 1]))):
        kind = draw(st.sampled_from(KINDS))
        count = draw(st.sampled_from([1, before] if kind is None else [2, 3, 4, 1]))
        stages.append((count, kind))
        before = count
    return Layout(
        tuple(stages),
        capacity=draw(st.integers(1, 4)),
        timeout_ms=draw(TIMEOUTS_MS),
        max_in_flight_bytes=draw(st.sampled_from([1 << 30, 1 << 30, 1 << 30, 200, 40, 0])),
    )


ARGUMENTS = st.tuples(st.integers(0, 30), st.integers(0, 2), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Rounds of input, an attempt, and what may come in between; as micro-batches would be."""
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 5))):
        inputs = st.sampled_from(["feed", "step", "feed"])
        between = st.sampled_from(
            ["feed", "step", "wait", "feed", "step", "wait", "barrier", "end", "crash"]
        )
        last = st.sampled_from(["complete", "complete", "complete", "step", "crash"])
        names = [
            *draw(st.lists(inputs, min_size=3, max_size=12)),
            *draw(st.sampled_from([[], [], [], ["end"], ["end", "step"]])),
            "barrier",
            *draw(st.sampled_from([["step", "feed"], ["step", "feed", "step", "feed"], []])),
            *draw(st.lists(between, max_size=8)),
            draw(last),
        ]
        events += [(name, *draw(ARGUMENTS)) for name in names]
    return events


def live(history: History, events: list[Event]) -> None:
    for what, number, small, flag in events:
        if what == "feed":
            for _ in range(1 + number % 3):
                history.feed(1 + small)
        elif what == "step":
            for _ in range(1 + number // 6):
                history.step()
        elif what == "barrier":
            history.barrier(number // 6, small, aligned=flag and number > 20)
        elif what == "complete":
            # Steps until the open attempt is through, as one micro-batch does; they take time.
            while history.attempt is not None:
                history.step()
                history.now_ms += small
        elif what == "wait":
            history.now_ms += number
        elif what == "crash":
            history.crash()
        elif flag:
            history.end()


def check(layout: Layout, events: list[Event]) -> None:
    """Live through a history, and run on from every snapshot of it, to the end of the input."""
    history = History(layout)
    live(history, events)
    fed = max([history.fed, *(base.fed for base in history.completed)])
    for base in history.unfinished():
        resumed(history, base).finish(base.fed if base.ended else fed)
    history.finish(fed)


@given(layouts(), histories())
@settings(max_examples=500, deadline=None)
def test_every_snapshot_of_every_history_leads_to_what_an_undisturbed_run_leads_to(
    layout: Layout, events: list[Event]
) -> None:
    check(layout, events)


@pytest.mark.full
@pytest.mark.timeout(3600)
@given(layouts(), histories())
@settings(max_examples=12_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_many_more_histories_lead_to_what_an_undisturbed_run_leads_to(
    layout: Layout, events: list[Event]
) -> None:
    check(layout, events)
