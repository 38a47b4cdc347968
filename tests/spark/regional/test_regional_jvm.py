"""A JVM that dies under the driver's Python ends a pipeline with words, and leaves no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import environment, program

# A Spark application for every case.
pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(600)]

WAIT_SECONDS = 300
CALLS = ("awaitTermination", "stop", "processAllAvailable", "stop_with_savepoint")


@pytest.mark.parametrize("at", ["batch", "idle", "splits"])
def test_a_jvm_that_is_killed_ends_the_pipeline_with_what_to_do(tmp_path: Path, at: str) -> None:
    job = subprocess.Popen(
        [sys.executable, program("spark/jvm_death_job.py"), "--folder", str(tmp_path), "--at", at],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "log.txt").open("wb"),
        start_new_session=True,
    )
    try:
        code = job.wait(timeout=WAIT_SECONDS)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert code == 0, (tmp_path / "log.txt").read_text(errors="replace")[-6000:]
    said = json.loads((tmp_path / "said.json").read_text())
    for call in CALLS:
        assert said[call]["type"] == "JvmLostError", said[call]
        assert "pipeline 'counting' cannot go on: the JVM of its driver" in said[call]["message"]
        assert "start it again" in said[call]["message"]
    assert said["status"]["active"] is False
    assert said["status"]["message"] == ""
    # The timeout of the test is the bound.
    while processes_of(job.pid):
        time.sleep(0.05)


def processes_of(session: int) -> list[int]:
    """Processes of a session: Python workers, their daemon, the source's own process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
