"""Runs of ``regional_job.py`` in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support import environment, program

WAIT_SECONDS = 400


def run_job(
    folder: Path,
    *arguments: str,
    job: str = "spark/regional_job.py",
    more: Mapping[str, str] | None = None,
) -> int:
    """Exit code of the job, which has `more` variables in its environment.

    The rest of its process group is killed.
    """
    with (folder / "log.txt").open("ab") as log:
        started = subprocess.Popen(
            [sys.executable, program(job), "--folder", str(folder), *arguments],
            cwd=folder,
            env=environment(more),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return started.wait(timeout=WAIT_SECONDS)
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def log_of(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-6000:]
