"""A pipeline without Spark that hands its rows to a function, and is killed around a call of it.

``function_job.py FOLDER [POINT]`` runs all batches. With POINT it kills itself around the call for
the checkpoint of batch `KILLED`: in the ``middle`` of the function, when it ``returned`` without a
note, or when that was ``noted``. The function replaces its effect for the same rows, one file per
call; every call is a line of ``calls.jsonl``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.regions.sinks import batch_function
from support.regional.pipelines import COUNTED, RunningCount, partitions_of, rows_of

REGIONS = ["r00", "r01", "r02"]
BATCHES = [rows_of(number, REGIONS, each=40) for number in range(4)]
POINTS = ("middle", "returned", "noted")
#: Its checkpoint is the fourth: the first one is empty.
KILLED = 2


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Replacing:
    """Keeps the rows of each call in a file that another call for the same rows replaces."""

    def __init__(self, folder: Path, point: str) -> None:
        self.folder = folder
        self.point = point

    def __call__(self, rows: pa.Table, checkpoint: hf.CheckpointId) -> None:
        got = [list(row.values()) for row in rows.to_pylist()]
        call = [int(checkpoint), checkpoint.batch_id, checkpoint.pipeline_id, got]
        with (self.folder / "calls.jsonl").open("a") as calls:
            calls.write(json.dumps(call) + "\n")
        staged = self.folder / "staged.json"
        staged.write_text(json.dumps(got[: len(got) // 2]))
        if self.point == "middle" and checkpoint.batch_id == KILLED:
            die()
        staged.write_text(json.dumps(got))
        staged.rename(self.folder / f"rows-{checkpoint.pipeline_id}-{checkpoint}.json")

    def install(self) -> None:
        """Put the points around the note that the function returned."""
        note = batch_function.note_delivered

        def note_or_die(folder: Any, checkpoint: int) -> None:
            ends = isinstance(checkpoint, hf.CheckpointId) and checkpoint.batch_id == KILLED
            if ends and self.point == "returned":
                die()
            note(folder, checkpoint)
            if ends and self.point == "noted":
                die()

        batch_function.note_delivered = note_or_die  # type: ignore[assignment]


def main() -> None:
    folder = Path(sys.argv[1])
    function = Replacing(folder, sys.argv[2] if len(sys.argv) > 2 else "")
    function.install()
    with (
        hf.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED, name="count")
        .foreach_batch(function)
        .open_local(folder / "ckpt")
    ) as query:
        for number, rows in enumerate(BATCHES):
            query.run_batch(partitions_of(rows, 2), batch_id=number)


if __name__ == "__main__":
    main()
