"""Functions of foreachBatch that reshape the batch, stop early, or read it twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import environment
from support.spark.isolation_histories import CHOSEN

pytestmark = pytest.mark.timeout(5400)


def histories(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Runs histories; returns what they found, and the log."""
    found = folder / "found.json"
    with (folder / "log.txt").open("wb") as log:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "support.spark.isolation_histories",
                "--found",
                found,
                *arguments,
            ],
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    return json.loads(found.read_text()), (folder / "log.txt").read_text(errors="replace")


def test_no_shape_of_the_batch_loses_or_doubles_a_row(tmp_path: Path) -> None:
    found, log = histories(tmp_path, "--chosen")
    assert {name: one["different"] for name, one in found.items()} == {name: [] for name in CHOSEN}
    logs = dict(re.findall(r"(?s)history ([^\n]+) begins\n(.*?)(?=\nhistory |\Z)", log))
    parked = [name for name in CHOSEN if "is parked in batch 1 " in logs[name]]
    # A look at the batch does not switch isolation off.
    assert parked == ["isEmpty before the write", "take before the write"]
    assert all(found[name]["starts"] == 2 for name in parked)
    for name in CHOSEN.keys() - parked:
        assert "in tasks of several partitions, or several times" in logs[name], name


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 3),
        pytest.param(106, 1, marks=pytest.mark.full),
        pytest.param(0, 500, marks=pytest.mark.full),
    ],
)
def test_random_functions_get_the_rows_of_an_undisturbed_run(
    first: int, count: int, tmp_path: Path
) -> None:
    found, _ = histories(tmp_path, "--first", str(first), "--count", str(count))
    assert len(found) == count
    assert {name: one["different"] for name, one in found.items() if one["different"]} == {}
