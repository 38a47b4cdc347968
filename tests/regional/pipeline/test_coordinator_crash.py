"""Death in any call of a coordinator: each event counts once, and between the same rows (R36)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import environment, program
from support.regional.coordinator_crash_job import BATCHES, CALLS, REGIONS
from support.regional.pipelines import rows_of

EXPECTED = sorted(
    [region, row_id, number + 1 if number else 0]
    for number in range(BATCHES)
    for region, row_id, _ in rows_of(number, REGIONS)
)


@pytest.mark.parametrize(
    "step",
    [19, pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(1800)])],
    ids=["some", "all"],
)
def test_a_driver_killed_in_any_call_of_a_coordinator_loses_no_event_and_doubles_none(
    tmp_path: Path, step: int
) -> None:
    job = [sys.executable, program("regional/coordinator_crash_job.py"), str(tmp_path)]
    first = step // 2 + 1
    done = subprocess.run(
        [*job, str(first), str(step)], env=environment({}), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    pipelines = [json.loads(line) for line in done.stdout.splitlines()]
    for pipeline in pipelines:
        assert pipeline["rows"] == EXPECTED, pipeline["outcomes"]
        assert pipeline["taken"] == {region: [*range(2, BATCHES + 1)] for region in REGIONS}
    died = {place for pipeline in pipelines for place in pipeline["outcomes"]} - {"done"}
    if step == 1:
        assert died == {f"{when} {call}" for when in ("before", "after") for call in CALLS}
