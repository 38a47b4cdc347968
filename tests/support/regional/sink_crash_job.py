"""Kills a process that works on a sink's folder before each of its system calls in turn.

``sink_crash_job.py ACTION TEMPLATE RUNS``: every run works on a copy of TEMPLATE, ``RUNS/1``,
``RUNS/2`` and so on, and dies before its 1st, 2nd, ... call. The last one has no such call, and
completes. Prints their number.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.regions.sinks import ParquetSink, Staged

FOLDER_CALLS = ["link", "listdir", "mkdir", "remove", "rename", "replace", "rmdir", "scandir"]
FILE_CALLS = ["close", "copy_file_range", "fsync", "open", "sendfile", "stat", "unlink", "write"]

# Made before any fork: the first array takes long, because PyArrow looks for pandas.
ROWS = pa.record_batch({"region": ["a"] * 1000, "row": range(1000)})


def die_before(nth: int) -> None:
    """Ends this process at the ``nth`` of the following calls."""
    made = itertools.count(1)

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if next(made) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    for name in FOLDER_CALLS + FILE_CALLS:
        setattr(os, name, dying(getattr(os, name)))
    io.open = dying(io.open)  # type: ignore[assignment]


def stage(folder: Path) -> None:
    sink = ParquetSink(folder / "out")
    with sink.writer("a", 7, ROWS.schema) as stage:
        stage.write(ROWS)
        stage.close()
    sink.persist([stage], None)


def commit(folder: Path) -> None:
    staged = [Staged(*fields) for fields in json.loads((folder / "staged.json").read_text())]
    ParquetSink(folder / "out").commit(1, staged)


def sweep(folder: Path) -> None:
    ParquetSink(folder / "out").sweep(3)


ACTIONS = {"stage": stage, "commit": commit, "sweep": sweep}


def run(action: Callable[[Path], None], folder: Path, *, nth: int) -> bool:
    """Runs the action in a process of its own; returns whether it completed."""
    child = os.fork()
    if child == 0:
        try:
            die_before(nth)
            action(folder)
            os._exit(0)
        except BaseException as error:
            print(f"{action.__name__} in {folder}: {error!r}", file=sys.stderr)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"expected an end or a kill, found exit code {code}")
    return code == 0


def main(action: str, template: Path, runs: Path) -> None:
    for nth in itertools.count(1):
        folder = runs / str(nth)
        shutil.copytree(template, folder)
        if run(ACTIONS[action], folder, nth=nth):
            print(nth)
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
