"""A parent and its branch, both killed again and again, while both clean up after each batch."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import holdfast
from harness.process import kill_session
from holdfast.files.mounted import MountedPath
from holdfast.queries import branches, leases
from holdfast.queries.logs import committed_batches
from support import environment, program
from support.spark.queries import STATE, write_batch

SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.shuffle.partitions": "2",
    STATE + "holdfast.maxFileBytes": "1",
}
KEYS = 500
KILLS = 5
BATCHES = 220


class Job:
    """A query that counts rows by key, and ends when they are used up."""

    def __init__(self, folder: Path, checkpoint: MountedPath) -> None:
        self.folder, self.checkpoint = folder, checkpoint
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--count", "--folder", self.folder, "--checkpoint", self.checkpoint]
        for key, value in SETTINGS.items():
            arguments += ["--conf", f"{key}={value}"]
        with (self.folder / f"{self.checkpoint.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, program("spark/branch_job.py"), *map(str, arguments)],
                env=environment(None),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def newest(self) -> int:
        return max(committed_batches(self.checkpoint), default=-1)

    def wait_until(self, batch: int) -> None:
        """Waits for a batch, or the end of the job."""
        assert self.process is not None
        deadline = time.monotonic() + 300
        while self.newest < batch and self.process.poll() is None:
            assert time.monotonic() < deadline, f"batch {batch} of {self.checkpoint}"
            time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        kill_session(self.process.pid)
        self.process.wait()

    def end(self) -> None:
        assert self.process is not None
        assert self.process.wait(timeout=600) == 0


def counts(checkpoint: Path) -> dict[int, int]:
    with holdfast.open_state(checkpoint) as state:
        rows = state.to_arrow().to_pylist()
    return {row["key"]: row["count"] for row in rows}


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_neither_misses_a_file_and_nothing_is_kept_for_ever(tmp_path: Path) -> None:
    chosen = np.random.default_rng(7)
    (tmp_path / "input").mkdir()
    expected: Counter[int] = Counter()
    for number in range(BATCHES):
        keys = chosen.integers(KEYS, size=50).tolist()
        expected.update(keys)
        write_batch(tmp_path / "input", number, [{"key": key} for key in keys])
    parent, branch = (Job(tmp_path, MountedPath(tmp_path / name)) for name in ("parent", "branch"))
    parent.start()
    parent.wait_until(BATCHES // 10)
    while True:
        try:
            begun = holdfast.branch(parent.checkpoint, branch.checkpoint)
            break
        except FileNotFoundError:
            # The query was quicker.
            branch.checkpoint.remove_tree()
    of_parent = {path.name for path in (parent.checkpoint / "state/holdfast").glob("*.hf")}
    branch.start()
    for kill in range(1, KILLS + 1):
        at = begun + (BATCHES - begun) * kill // (KILLS + 1)
        for job in (parent, branch):
            job.wait_until(at)
            job.kill()
            job.start()
    for job in (parent, branch):
        job.end()
        # A batch after a restart may have the rows of two.
        assert job.newest >= 0.8 * BATCHES
        assert counts(job.checkpoint) == expected
    (lease,) = leases.find_leases(parent.checkpoint)
    assert branches.is_needed(lease)
    shutil.rmtree(branch.checkpoint)
    assert not branches.is_needed(lease)
    leases.drop(parent.checkpoint, lease.name)
    for number in range(BATCHES, BATCHES + 4):
        write_batch(tmp_path / "input", number, [{"key": key} for key in range(KEYS)])
    parent.start()
    parent.end()
    left = {path.name for path in (parent.checkpoint / "state/holdfast").glob("*.hf")}
    # Every store has had base images since.
    assert not of_parent & left
