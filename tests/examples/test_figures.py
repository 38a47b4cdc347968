from __future__ import annotations

import pytest

from flights.figures import RunFigures
from harness.figures import BatchFigures, Spread, ratio, ratio_text
from harness.objects import StateObjects


def batch(batch_id: int, batch_ms: int) -> BatchFigures:
    return BatchFigures(
        batch_id=batch_id, input_rows=5, batch_ms=batch_ms, commit_ms=3, updates_ms=2, state_rows=1
    )


def run(*batches: BatchFigures) -> RunFigures:
    objects = StateObjects(files=1, files_bytes=2, crc_files=3, crc_bytes=4)
    return RunFigures(query="delays", provider="spark", batches=batches, objects=objects)


def test_progress_is_summed_over_operators_and_sources() -> None:
    operator = {"commitTimeMs": 30, "allUpdatesTimeMs": 20, "numRowsTotal": 7}
    progress = {
        "batchId": 4,
        "sources": [{"numInputRows": 10}, {"numInputRows": 1}],
        "stateOperators": [operator, operator],
        "durationMs": {"triggerExecution": 500},
    }
    assert BatchFigures.from_progress(progress) == BatchFigures(
        batch_id=4, input_rows=11, batch_ms=500, commit_ms=60, updates_ms=40, state_rows=14
    )


def test_median_leaves_batch_0_out_and_the_sums_do_not() -> None:
    figures = run(batch(0, 9000), batch(1, 100), batch(2, 300), batch(3, 200))
    assert figures.batch_ms_median == 200
    assert figures.batch_ms_sum == 9600
    assert figures.commit_ms_sum == 12


def test_median_of_a_run_with_nothing_but_batch_0_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one batch after batch 0"):
        _ = run(batch(0, 9000)).batch_ms_median


def test_a_ratio_to_nothing_is_no_ratio() -> None:
    assert ratio(1, 0) is None
    assert ratio_text(1, 0) == "-"
    assert ratio_text(1, 4) == "0.25"
    assert ratio_text(1, 800) == "0.0013"


def test_spread_is_median_and_range() -> None:
    assert Spread.of([3, 1, 8]) == Spread(median=3, low=1, high=8)
