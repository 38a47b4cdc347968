"""What a soak checks, and a short one; ``make soak`` runs the long one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.spark.faults import World
from support.spark.soak import Report, soak

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)

#: Close to every bound.
TIGHT = Report(
    batches=100,
    restarts=5,
    kills_armed=4,
    kills_at_points=2,
    files_max=25,
    files_written=100,
    file_bytes_max=250_000,
    bytes_written=1_000_000,
    store_memory_third=1_000_000,
    store_memory_end=1_300_000,
    process_third=400_000_000,
    process_end=520_000_000,
    seconds=1.0,
)


@pytest.mark.full
def test_batches_with_random_restarts_under_contention(world: World) -> None:
    report = soak(world, batches=40, restarts=3, seed=7)
    report.check()


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"batches": 39}, "too few batches"),
        ({"kills_armed": 0, "kills_at_points": 0}, "no kill hit its point"),
        ({"kills_at_points": 1}, "most kills missed their point"),
        ({"files_max": 26}, "files pile up"),
        ({"files_max": 100}, "files pile up"),
        ({"file_bytes_max": 260_000}, "bytes of files pile up"),
        ({"store_memory_end": 1_310_000}, "stores grow"),
        ({"process_end": 530_000_000}, "the process grows"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_soak_fails_beyond_each_bound(seen: dict[str, int], said: str) -> None:
    TIGHT.check()
    with pytest.raises(AssertionError, match=said):
        replace(TIGHT, **seen).check()
