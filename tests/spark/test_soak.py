"""A short soak; ``make soak`` runs the long one."""

from __future__ import annotations

import pytest

from faults import World
from soak import soak

# Several Spark applications in a row: for when the machine is busy.
pytestmark = pytest.mark.timeout(900)


def test_batches_with_random_restarts_under_contention(world: World) -> None:
    report = soak(world, batches=40, restarts=3, seed=7)
    assert report.kills_at_points > 0
    # Ten batches lie between two clean-ups; a batch writes 1.5 kB, a file holds 20 kB.
    assert report.files_max <= 40
    assert report.file_bytes_max <= 400_000
    # 53 keys, all there from the first batch on: memory stops growing once garbage is collected.
    assert report.store_memory_max <= 2 * report.store_memory_half
    assert report.process_max <= 1_500_000_000
