"""Maintenance writes the large runs of all stores of an executor into one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.spark.jobs import run_job
from support.spark.object_stores import Store, stand_in
from support.spark.queries import STATE

#: Of `large_runs_job`.
STATE_BYTES = 20_800 * 1_000


def measured(folder: Path, store: Store, interval: str) -> dict[str, Any]:
    """What `large_runs_job` found."""
    folder.mkdir()
    settings = {**store.settings, STATE + "maintenanceInterval": interval}
    arguments = ("--checkpoint", store.uri, "--files", str(store.folder))
    printed = run_job(
        "spark/large_runs_job.py",
        *arguments,
        folder=folder,
        settings=settings,
        more=store.environment,
    )
    found: dict[str, Any] = json.loads(printed[-1])
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "interval"),
    [
        # A pass is over before the next one begins, ...
        ("objects", "6s"),
        ("local", "6s"),
        # ... or maintenance never rests: the next passes close the file.
        ("objects", "500ms"),
    ],
)
def test_large_runs_of_one_pass_are_in_one_file_and_the_next_batch_builds_on_them(
    place: str, interval: str, helpers: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    local = Store(str(checkpoint), checkpoint, {}, {})
    store = stand_in(helpers, checkpoint) if place == "objects" else local
    found = measured(tmp_path / "job", store, interval)
    runs = [count for count in found["runs"] if count > 0]
    assert sum(runs) == 4
    if interval == "6s":
        assert runs == [4]
    else:
        # All became due together, but a pass may have been under way.
        assert len(runs) <= 2
    assert found["unmerged"] == 4, "of each store the changelog of the last batch"
    assert found["bytes"] == STATE_BYTES
