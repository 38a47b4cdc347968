"""A state file that cannot be made durable fails its batch, and the replay is exact."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support import write_batch

HERE = Path(__file__).parent


def test_a_failed_sync_fails_the_batch_and_the_replay_is_right(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed, as for Rust"
    library = tmp_path / "failing_sync.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(HERE / "failing_sync.c"), "-ldl"],
        check=True,
    )
    (tmp_path / "input").mkdir()
    for batch in range(3):
        write_batch(tmp_path / "input", batch, [{"key": key} for key in range(20)])
    done = subprocess.run(
        [sys.executable, str(HERE / "failing_sync_job.py"), str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": str(HERE),
            "LD_PRELOAD": str(library),
            "FAILING_SYNC_MARKER": str(tmp_path / "marker"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "could not be made durable" in done.stdout, done.stdout
    assert "committed: False" in done.stdout
    for batch in range(3):
        rows = [(key, batch + 1) for key in range(20)]
        assert (tmp_path / "output" / f"{batch}.txt").read_text() == repr(rows)
