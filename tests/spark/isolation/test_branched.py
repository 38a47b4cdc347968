"""A branch of a checkpoint whose partitions wait catches up like its parent."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from support.spark.branch_job import CLEANING
from support.spark.isolation_runs import found, log


def test_a_branch_has_the_rows_that_wait_in_its_parent(tmp_path: Path) -> None:
    folder = tmp_path / "parked"
    cleaning = [part for one in CLEANING.items() for part in ("--conf", "=".join(one))]
    found(folder, *cleaning, "bad:0-6")
    branch, file = folder / "branch", folder / "checkpoint" / "isolation" / "2"
    # The query deletes it once no rows of the batch wait, and may still retain this batch.
    file.rename(folder / "cleaned up")
    with pytest.raises(FileNotFoundError, match=r"rows of batch 2 wait in batch 5, and .*/2 was"):
        holdfast.branch(folder / "checkpoint", branch)
    assert not branch.exists()
    (folder / "cleaned up").rename(file)
    assert holdfast.branch(folder / "checkpoint", branch) == 5
    # The parent cleans up what only the branch needs.
    parent = found(folder, *cleaning, "good:6-7", "good:7-8", "good:8-9")
    assert not (folder / "checkpoint" / "commits" / "5").exists()
    ours = found(folder, "--checkpoint", str(branch), "good:9-9")
    assert "is parked" in log(folder)
    assert ours["state"] == parent["state"]
