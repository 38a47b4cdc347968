from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from flights.rolling import RECENT, SCHEMA, RollingDelays  # noqa: E402
from holdfast.regions import OperatorContext  # noqa: E402
from holdfast.regions.state.registry import StateRegistry  # noqa: E402

CARRIERS = ("AA", "B6", "DL")
ROWS = 3 * RECENT * 4


def flights(*, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    delays = [int(delay) if delay < 250 else None for delay in random.integers(-40, 260, ROWS)]
    numbers = pa.array(np.arange(ROWS))
    return pa.RecordBatch.from_pydict(
        {
            "origin": pa.array(["JFK"] * ROWS),
            **dict.fromkeys(("month", "day", "hour", "minute", "flight"), numbers),
            "carrier": pa.array([CARRIERS[n] for n in random.integers(0, 3, ROWS)]),
            "dep_delay": pa.array(delays, pa.int64()),
        }
    )


def opened(saved: Sequence[object] = ()) -> tuple[RollingDelays, StateRegistry]:
    state = StateRegistry(np, saved)
    operator = RollingDelays(CARRIERS)
    operator.open(OperatorContext("JFK", "delays", 0, 1, state, np))
    return operator, state


def by_a_plain_loop(batch: pa.RecordBatch) -> list[tuple[int, int, float, int, float]]:
    seen: dict[str, list[int]] = defaultdict(list)
    out = []
    for row in batch.to_pylist():
        if row["dep_delay"] is None:
            continue
        delays = seen[row["carrier"]]
        delays.append(row["dep_delay"])
        recent = delays[-RECENT:]
        mean, recent_mean = sum(delays) / len(delays), sum(recent) / len(recent)
        out.append((row["flight"], len(delays), mean, max(delays), recent_mean))
    return out


def result(batches: Sequence[pa.RecordBatch | None]) -> list[tuple[int, int, float, int, float]]:
    table = pa.Table.from_batches([batch for batch in batches if batch is not None], SCHEMA)
    return [
        (row["flight"], row["departed"], row["mean"], row["max"], row["recent_mean"])
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("step", [1, 7, RECENT, ROWS])
def test_statistics_are_those_of_a_loop_wherever_batches_end(step: int) -> None:
    batch = flights(seed=step)
    operator, _ = opened()
    out = [operator.process(batch.slice(start, step)) for start in range(0, ROWS, step)]
    assert result(out) == by_a_plain_loop(batch)


def test_an_operator_goes_on_from_the_state_of_another_one() -> None:
    batch = flights(seed=5)
    first, state = opened()
    out = [first.process(batch.slice(0, 100))]
    second, _ = opened(state.freeze(lambda name, refs: [False] * len(refs)))
    first.process(batch)  # what it does later is nothing to the second one
    out.append(second.process(batch.slice(100)))
    assert result(out) == by_a_plain_loop(batch)


def test_flights_that_did_not_depart_are_left_out() -> None:
    batch = flights(seed=6)
    cancelled = batch.filter(pa.compute.is_null(batch.column("dep_delay")))
    assert cancelled.num_rows > 0
    assert opened()[0].process(cancelled) is None


def test_a_carrier_that_was_not_named_is_an_error() -> None:
    batch = flights(seed=7).slice(0, 1)
    unknown = batch.set_column(
        batch.schema.get_field_index("carrier"), "carrier", pa.array(["ZZ"])
    ).set_column(batch.schema.get_field_index("dep_delay"), "dep_delay", pa.array([1]))
    with pytest.raises(ValueError, match="carrier"):
        opened()[0].process(unknown)
