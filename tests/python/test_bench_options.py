"""Options of ``benches/run.py``: what is refused before anything is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")

RUN = Path(__file__).parents[2] / "benches" / "run.py"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--target-mib", "0"], "argument --target-mib: expected at least 1, found 0"),
        (["--rounds", "-1"], "argument --rounds: expected at least 1, found -1"),
        (["--rows", "many"], "argument --rows: invalid count value: 'many'"),
    ],
)
def test_a_size_that_cannot_be_measured_is_refused(arguments: list[str], expected: str) -> None:
    done = subprocess.run(
        [sys.executable, str(RUN), "resident", "--quick", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert expected in done.stderr
