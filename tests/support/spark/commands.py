"""The command line on file systems that only Spark reaches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from support import environment

#: Starts one JVM for all commands.
_PROGRAM = """
import contextlib, io, json, sys
from holdfast.cli.main import main
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(arguments)
    if status != 0:
        sys.exit(f"{arguments} ended with {status}: {printed.getvalue()}")
    print(json.dumps(printed.getvalue()))
"""


def with_settings(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The environment of programs that have settings of Spark and `more` variables."""
    conf = (f"--conf '{key}={value}'" for key, value in settings.items())
    return {**more, "PYSPARK_SUBMIT_ARGS": f"{' '.join(conf)} {os.environ['PYSPARK_SUBMIT_ARGS']}"}


def run_commands(
    settings: Mapping[str, str], more: Mapping[str, str], *commands: Sequence[str]
) -> list[str]:
    """Run ``holdfast`` with each of some arguments; it must succeed. Returns the printed lines.

    It runs with settings of Spark and `more` variables in its environment.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        env=environment(with_settings(settings, more)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
