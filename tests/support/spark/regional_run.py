"""Runs of ``regional_job.py`` in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support import environment, program

WAIT_SECONDS = 400


def run_job(folder: Path, *arguments: str) -> int:
    """Exit code of the job; what it left running in its process group is killed."""
    with (folder / "log.txt").open("ab") as log:
        job = subprocess.Popen(
            [sys.executable, program("spark/regional_job.py"), "--folder", str(folder), *arguments],
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return job.wait(timeout=WAIT_SECONDS)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def log_of(folder: Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")[-6000:]
