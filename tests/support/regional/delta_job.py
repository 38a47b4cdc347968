"""A pipeline into a Delta table that is killed around a commit. Run as a program.

``delta_job.py TABLE FOLDER POINT``: the process kills itself at the POINT of its second commit, for
checkpoint 3.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

import holdfast as hf
from holdfast.regions.sinks.delta import DeltaSink
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, partitions_of, rows_of
from support.regional.tuned import tune_tasks

#: In the order of a commit.
POINTS = ("staged", "second-link", "published", "added", "synced", "swept")
REGIONS = ["r00", "r01", "r02", "r03"]
TASKS = 2
BATCHES = [rows_of(number, REGIONS) for number in range(4)]


def open_pipeline(
    table: Path, checkpoint: Path, *, hooks: Hooks | None = None, **options: Any
) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED, name="count")
        .write_delta(table)
        .open_local(checkpoint, **options)
    )


def run(query: hf.LocalQuery, count: int, *, first: int = 0) -> None:
    for number in range(first, count):
        query.run_batch(partitions_of(BATCHES[number], TASKS), batch_id=number)


def dying(owner: Any, name: str, at: int, *, behind: bool = False) -> None:
    """Die before or after the call of this number."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = []

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == at and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


def main(table: Path, checkpoint: Path, point: str) -> None:
    # One file of each task, also on a slow machine.
    tune_tasks(setattr, share_wait_ms=600_000)
    links = TASKS
    places: dict[str, tuple[Any, str, int, bool]] = {
        "staged": (DeltaSink, "commit", 2, False),
        "second-link": (os, "link", links + 2, False),
        # The first commit creates the table.
        "published": (DeltaTable, "create_write_transaction", 1, False),
        "added": (DeltaTable, "create_write_transaction", 1, True),
        "synced": (DeltaSink, "_sync_log", 2, True),
        "swept": (DeltaSink, "sweep", 3, True),
    }
    owner, name, at, behind = places[point]
    dying(owner, name, at, behind=behind)
    with open_pipeline(table, checkpoint) as query:
        run(query, len(BATCHES))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
