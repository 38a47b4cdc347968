"""Processes that share a device, and processes that die while they copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import environment, program
from support.regional import array_modules
from support.regional.device_job import expected, output_of


@pytest.fixture(params=["stand-in", "cupy"])
def module(request: pytest.FixtureRequest) -> str:
    """The name of an array module whose arrays are on a device, or on a stand-in for one."""
    reason = array_modules.missing(request.param)
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


def job(module: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, program("regional/device_job.py"), module, str(folder), *more],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-4000:]
    return out


def test_two_processes_share_a_device(tmp_path: Path, module: str) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for process in [job(module, folder) for folder in folders]:
        ended(process)
    assert [output_of(folder) for folder in folders] == [expected()] * 2


# A process that uses CUDA takes seconds to start.
@pytest.mark.parametrize(
    ("module", "step"),
    [("stand-in", 23), ("cupy", 9), pytest.param("stand-in", 1, marks=pytest.mark.full)],
    indirect=["module"],
)
def test_a_process_that_is_killed_at_any_step_of_a_copy_is_continued(
    tmp_path: Path, module: str, step: int
) -> None:
    steps = int(ended(job(module, tmp_path, str(step))))
    assert steps > 60
    for nth in range(1, steps + 1, step):
        assert output_of(tmp_path / str(nth)) == expected(), f"after step {nth}"
