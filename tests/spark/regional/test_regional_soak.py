"""What the soak of a regional pipeline checks, and a short one; ``make soak-regional`` is long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.spark.regional_soak import MAX_FILES, MIN_BATCHES, RegionalReport, RegionalSoak

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

#: Close to every bound.
TIGHT = RegionalReport(
    batches=MIN_BATCHES,
    killed_drivers=1,
    killed_jvms=1,
    killed_workers=1,
    killed_all=1,
    global_checkpoints=20,
    regional_checkpoints=1,
    aborted_attempts=0,
    failures=1,
    in_flight_checkpoints=1,
    files_max=MAX_FILES,
    jvm_third=400_000_000,
    jvm_end=520_000_000,
    seconds=1.0,
)


@pytest.mark.full
def test_a_regional_pipeline_with_random_kills(tmp_path: Path) -> None:
    soak = RegionalSoak(tmp_path / "pipeline", batches=MIN_BATCHES, seed=3)
    try:
        report = soak.run(kills=4, done=lambda batches: None)
    finally:
        soak.end()
    report.check()


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"batches": MIN_BATCHES - 1}, "too few batches"),
        ({"killed_drivers": 0}, "never killed"),
        ({"killed_jvms": 0}, "never killed"),
        ({"killed_workers": 0}, "never killed"),
        ({"killed_all": 0}, "never killed"),
        ({"failures": 0}, "no region failed"),
        ({"regional_checkpoints": 0}, "no checkpoint was regional"),
        ({"in_flight_checkpoints": 0}, "no checkpoint owed rows"),
        ({"files_max": MAX_FILES + 1}, "files pile up"),
        ({"jvm_end": 530_000_000}, "the JVM grows"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_regional_soak_fails_beyond_each_bound(seen: dict[str, int], said: str) -> None:
    TIGHT.check()
    with pytest.raises(AssertionError, match=said):
        replace(TIGHT, **seen).check()
