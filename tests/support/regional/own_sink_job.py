"""Kills a pipeline with a sink of a user's own in the middle of its commits. Run as a program.

``own_sink_job.py FOLDER STEP`` runs pipelines in child processes. Child n is killed when its
commits and recoveries reach step n * STEP of SQLite's virtual machine, and other processes complete
every pipeline. Prints for each a line of JSON: the ends of its processes, and the rows of readers
after the first and the last one.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import sys
import traceback
from pathlib import Path
from typing import Any

from support.regional.own_sink import SqliteSink, documented, open_pipeline, rows_in
from support.regional.pipelines import partitions_of, rows_of

REGIONS = ["r00", "r01"]
BATCHES = [rows_of(number, REGIONS) for number in range(3)]


def run(folder: Path) -> None:
    with open_pipeline(SqliteSink(folder / "out.db"), folder / "ckpt", num_retained=1) as query:
        for number, rows in enumerate(BATCHES):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()


def killed_at(step: int) -> None:
    """Ends this process at a step of the databases that the sink opens."""
    steps = itertools.count(1)
    real = sqlite3.connect

    def count() -> int:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db = real(*arguments, **options)
        db.set_progress_handler(count, 1)
        return db

    documented.sqlite3 = type("Sqlite", (), {"connect": staticmethod(connect)})  # type: ignore[attr-defined]


def in_child(folder: Path, step: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            if step:
                killed_at(step)
            run(folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, step: int) -> None:
    for nth in itertools.count(1):
        own = folder / str(nth)
        own.mkdir()
        first = in_child(own, nth * step)
        seen = [rows_in(own / "out.db")]
        # In the next process, the same point may be in the recovery.
        codes = [first, in_child(own, nth * step if first else 0), in_child(own, 0)]
        seen.append(rows_in(own / "out.db"))
        waiting = [path.name for path in (own / "out.waiting").glob("[0-9]*/*")]
        print(json.dumps({"codes": codes, "seen": seen, "waiting": waiting}))
        if first == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
