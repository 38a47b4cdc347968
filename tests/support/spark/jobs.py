"""Programs of this package that are Spark applications and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import environment, program

TIMEOUT_SECONDS = 280


def run_job(
    name: str,
    *arguments: str | Path,
    folder: Path,
    settings: Mapping[str, str],
    more: Mapping[str, str] | None = None,
    under: Sequence[str] = (),
) -> list[str]:
    """Run a program that takes ``--folder`` and, for each setting of Spark, ``--conf``.

    Parameters
    ----------
    name
        As for :func:`support.program`.
    folder
        For other files of the program than its checkpoint.
    settings
        Settings of its session.
    more
        Further variables of its environment.
    under
        Words of a command that runs the rest of its line, such as a shell that sets limits.

    Returns
    -------
    list of str
        The lines that it printed.
    """
    done = subprocess.run(
        [
            *[*under, sys.executable, program(name), "--folder", folder, *arguments],
            *[f"--conf={key}={value}" for key, value in settings.items()],
        ],
        env=environment(more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()
