"""Runs pipelines in processes that die in chosen calls of a coordinator, then to their end.

``coordinator_crash_job.py FOLDER FIRST STEP``. Every pipeline has a folder, FOLDER/n. Its first
process is killed before or after a call of its coordinator, at the n-th such step; the next one,
which restarts it, after some more. A third process completes the pipeline. n is FIRST, then FIRST +
STEP, and so on until there is no n-th step. Prints a line of JSON for every pipeline: the ends of
its processes, their places, its rows, and the calls of its coordinator.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from support.regional.pipelines import output_of, partitions_of, rows_of
from support.regional.versions import SCORED, Scorer, Versions

REGIONS = ["a", "b", "c"]
BATCHES = 4
#: The second death is before one of this many steps.
RESTART_STEPS = 23
CALLS = (
    "start",
    "begin_batch",
    "handle_event",
    "checkpoint",
    "checkpoint_fallback",
    "region_reset",
    "reset",
    "checkpoint_complete",
    "checkpoint_aborted",
    "close",
)


class Dying(Versions):
    """Kills its process before or after the call at which no step is left."""

    def __init__(self, steps: int, died: Path) -> None:
        super().__init__()
        self.steps = steps
        self.died = died

    def step(self, where: str) -> None:
        self.steps -= 1
        if self.steps == 0:
            self.died.write_text(where)
            os.kill(os.getpid(), signal.SIGKILL)


def _dying(name: str) -> Any:
    call = getattr(Versions, name)

    def dying(self: Dying, *arguments: Any) -> Any:
        self.step(f"before {name}")
        result = call(self, *arguments)
        self.step(f"after {name}")
        return result

    return dying


for name in CALLS:
    setattr(Dying, name, _dying(name))


class Failing(Scorer):
    """Region b fails twice from its second batch on, and all regions fail once in the last."""

    def __init__(self, marks: Path) -> None:
        super().__init__()
        self.marks = marks

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        number = batch.column("id")[0].as_py() // 1000
        if number == 1 and self.region == "b":
            self.fail("b-1")
            self.fail("b-2")
        if number == BATCHES - 1:
            self.fail(f"{self.region}-last")
        yield from super().process(batch)

    def fail(self, once: str) -> None:
        if not (self.marks / once).exists():
            (self.marks / once).touch()
            raise RuntimeError("in trouble, once")


def run(folder: Path, steps: int) -> None:
    """Give all batches from the start: batches in a checkpoint are skipped."""
    versions = Dying(steps, folder / "died")
    pipeline = hf.regional(region_by="region").apply(
        Failing(folder / "marks"), schema=SCORED, name="score", coordinator=versions
    )
    with pipeline.write_parquet(folder / "out").open_local(
        folder / "ckpt", max_failure_ratio=0.5, tolerable_failed_checkpoints=3
    ) as query:
        for number in range(BATCHES):
            query.run_batch(partitions_of(rows_of(number, REGIONS), 2), batch_id=number)
        query.finish()
        (folder / "taken").write_text(json.dumps(versions.taken))


def outcome(folder: Path, steps: int) -> str:
    """Run the pipeline in a process of its own; returns the place of its death, or "done"."""
    (folder / "died").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            run(folder, steps)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"{folder}, step {steps}: expected 0 or -9, found {code}")
    return "done" if code == 0 else (folder / "died").read_text()


def main(folder: Path, first: int, step: int) -> None:
    for nth in itertools.count(first, step):
        own = folder / str(nth)
        (own / "marks").mkdir(parents=True)
        points = (nth, 1 + nth * 7 % RESTART_STEPS, 0)
        outcomes = [outcome(own, point) for point in points]
        taken = json.loads((own / "taken").read_text())
        print(json.dumps({"outcomes": outcomes, "rows": output_of(own / "out"), "taken": taken}))
        shutil.rmtree(own)
        if outcomes[0] == "done":
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
