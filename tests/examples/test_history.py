from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from flights.history import Attempt, verdicts
from holdfast.regions.coordinator import FailedRegion, Outcome
from holdfast.regions.driver.history import HistoryRow


def attempt(id: int, batch: int, outcome: Outcome, *failed: str, **in_flight: int) -> Attempt:
    origin = None if outcome == "aborted" else 2
    regions = tuple(FailedRegion(region=name, origin=origin, cause="x") for name in failed)
    rows = sum(in_flight.values())
    row = HistoryRow(
        id=id,
        batch_id=batch,
        kind="checkpoint",
        outcome=outcome,
        failed=regions,
        in_flight_rows=rows,
        started_ms=0,
        ended_ms=0,
    )
    return Attempt(row=row, in_flight=in_flight)


# Attempt 5 is the one that was killed.
GOOD = (
    attempt(1, -1, "global"),
    attempt(2, 0, "global"),
    attempt(3, 1, "regional", "bad", bad=10),
    attempt(4, 2, "regional", "bad", bad=20, slow=7),
    attempt(6, 3, "aborted", "bad"),
    attempt(7, 3, "regional", "bad", bad=30, slow=3),
    attempt(8, 4, "global", slow=2),
    attempt(9, 4, "global"),
)


def held(attempts: Sequence[Attempt]) -> list[bool]:
    found = verdicts(attempts, failing="bad", failures=4, slow="slow", batches=5)
    return [good for _, good in found]


def without(*ids: int) -> list[Attempt]:
    return [attempt for attempt in GOOD if attempt.row.id not in ids]


def changed(id: int, other: Attempt) -> list[Attempt]:
    return [other if attempt.row.id == id else attempt for attempt in GOOD]


def test_a_history_with_all_that_was_to_happen_is_accepted() -> None:
    assert held(GOOD) == [True] * 5


def test_on_a_slow_machine_two_attempts_that_had_to_be_global_may_fail() -> None:
    # Rows waited until an attempt that must be global, so that one regional checkpoint is missing.
    attempts = changed(7, attempt(7, 3, "aborted", "bad"))
    attempts.insert(-2, attempt(8, 3, "global", bad=30))
    attempts[-2:] = [attempt(9, 4, "global", slow=2), attempt(10, 4, "global")]
    found = list(verdicts(attempts, failing="bad", failures=4, slow="slow", batches=5))
    assert [good for _, good in found] == [True] * 5
    assert "2 regional checkpoints" in found[1][0]
    assert found[1][0].endswith("2 attempts that had to be global were aborted")


def test_what_was_found_is_said_with_its_figures() -> None:
    texts = [text for text, _ in verdicts(GOOD, failing="bad", failures=4, slow="slow", batches=5)]
    assert "bad alone failed, 4 times: 3 regional checkpoints" in texts[1]
    assert "in checkpoint 8" in texts[2]
    assert (
        "slow contributed to 3 checkpoints whose barrier overtook rows of it, at most 7" in texts[3]
    )


@pytest.mark.parametrize(
    ("attempts", "refused"),
    [
        pytest.param(without(2), [0], id="a batch is missing"),
        pytest.param(changed(6, attempt(4, 3, "aborted", "bad")), [0], id="an id came twice"),
        pytest.param(changed(7, attempt(7, 3, "regional", "good")), [1], id="another"),
        pytest.param(changed(6, attempt(6, 3, "regional", "bad")), [1], id="none was aborted"),
        pytest.param(changed(7, attempt(7, 3, "global")), [1], id="a failure is missing"),
        pytest.param(GOOD[:-2], [2, 4], id="the end is not global"),
        pytest.param(
            [replace(attempt, in_flight={}) for attempt in GOOD], [3], id="nothing was overtaken"
        ),
        pytest.param(changed(9, attempt(9, 4, "global", slow=1)), [4], id="rows are owed"),
        pytest.param([*GOOD, attempt(10, 5, "global")], [4], id="another last batch"),
    ],
)
def test_each_check_refuses_what_it_is_there_for(
    attempts: Sequence[Attempt], refused: list[int]
) -> None:
    assert held(attempts) == [number not in refused for number in range(5)]


def test_a_slow_region_that_failed_was_not_overtaken() -> None:
    attempts = [
        attempt(1, -1, "global"),
        attempt(2, 0, "regional", "slow", slow=5),
        attempt(3, 0, "global"),
    ]
    found = list(verdicts(attempts, failing="slow", failures=1, slow="slow", batches=1))
    assert not found[3][1]


def test_an_attempt_comes_back_from_its_event() -> None:
    event = json.loads(json.dumps(asdict(GOOD[3])))
    assert Attempt.from_event(event) == GOOD[3]
