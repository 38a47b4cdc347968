"""Runs pipelines in processes that fail at chosen changes of files, then to their end.

``pipeline_crash_job.py CASE WHAT FOLDER FIRST STEP``, with ``crash_calls.c`` preloaded. Every
pipeline has a folder, FOLDER/n. If WHAT is ``die_before``, its first process dies before its n-th
change of files, and the next one, which restarts it, after some more; with ``fail_at``, these
changes fail. A third process completes the pipeline. With the CASE ``rows``, all changes of the
first process count. With ``end`` and ``last``, data ends, and changes count from there on, or from
the publication of the last checkpoint. With ``splits``, an enumerator hands files to regions. With
``retire`` and ``timers``, a region stays away. With ``quarantine``, a region fails until the third
process. With ``large``, a table is merged during batches. n is FIRST, then FIRST + STEP, and so on
until there is no n-th change. Prints a line of JSON for every pipeline: the ends of its processes,
and the output after each of them.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast._core import CheckpointMetadata
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.read import checkpoint_ids
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.coordinator.idle import LEAST_CHECKPOINTS
from holdfast.regions.files.folders import CheckpointFolders
from support.regional.pipelines import (
    COUNTED,
    Reminded,
    RunningCount,
    output_of,
    partitions_of,
    rows_of,
)
from support.regional.split_files import PLACED, Placed, splits_of, write_ids
from support.regional.tuned import tune_tasks

REGIONS = ["r00", "r01", "r02"]
BATCHES = [rows_of(number, REGIONS, each=40) for number in range(4)]
#: In place of a row's id and of a count in rows at the end of data.
NONE = -1
#: The rows at the end of data.
FLUSHED = [
    (region, NONE, sum(row[0] == region for rows in BATCHES for row in rows), NONE)
    for region in REGIONS
]
#: The rows of the side output, which has all rows.
IDS = pa.schema([("region", pa.string()), ("id", pa.int64())])
#: Rows of the batch in which region r02, which shares a file with r00, fails once.
FAILING = range(1000, 2000)
#: An array too large to be kept in the metadata, so that there are segments.
BALLAST = 512
#: Files of a source of splits: four splits each, three for a batch.
FILES = 3
#: No segment file holds more than a few of these.
MAX_FILE_BYTES = 1024
#: The second death is before one of this many changes.
RESTART_CHANGES = 97
#: About the changes and syncs of an undisturbed run.
FAILURES = 350
FAILED = 3
#: With the cases ``retire`` and ``timers``, region r02 has rows in the first batch only.
AWAY = "r02"
#: Time until it is retired. Time between batches is longer than the most that one step counts.
RETIRE_IDLE = timedelta(milliseconds=LEAST_CHECKPOINTS)
#: One batch without its rows more than necessary, and one after it.
STAYING = [
    BATCHES[0],
    *(
        [row for row in rows_of(number, REGIONS, each=4) if row[0] != AWAY]
        for number in range(1, LEAST_CHECKPOINTS + 2)
    ),
]
WAITING = STAYING[:4]
#: The rows that it puts out when it is retired.
LAST_ROWS = [(AWAY, NONE, sum(row[0] == AWAY for row in BATCHES[0]), NONE)]
#: With the case ``quarantine``, this region fails until it is repaired.
STUCK = "r02"
#: Number of pieces from which some are merged.
PIECES = 2
#: A batch of them is large, so that it becomes a run at once, and is merged during batches.
LARGE_ROWS = 9
LARGE_ROW_BYTES = 1 << 20
LARGE_BATCHES = [rows_of(number, REGIONS, each=4) for number in range(10)]
#: Cases in which data ends.
ENDING = ("end", "last")
ENDS = {0: "done", FAILED: "failed", -signal.SIGKILL: "killed"}


class WithBallast(hf.Operator):
    """Base of an operator: adds a state that is kept in segments, and fails once."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx
        self.ballast = ctx.state.array("ballast", shape=(BALLAST,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.is_to_fail(batch.column("id")[0].as_py()) and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("in trouble, once")
        self.ballast += batch.num_rows
        yield from super().process(batch)

    def is_to_fail(self, first_id: int) -> bool:
        raise NotImplementedError


class Ballasted(WithBallast, RunningCount):
    """Has two states that must always be of the same age; r02 fails. Counts up in the end."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.check()
        self.ctx.emit("ids", batch.select(["region", "id"]))
        yield from super().process(batch)

    def is_to_fail(self, first_id: int) -> bool:
        return self.region == "r02" and first_id in FAILING

    def on_end_of_data(self) -> Iterator[pa.RecordBatch]:
        self.check()
        row = {"region": [self.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        yield pa.RecordBatch.from_pydict(row, schema=COUNTED)

    def check(self) -> None:
        if not (self.ballast == self.rows.value).all():
            raise AssertionError(f"ballast {self.ballast[:4]} does not go with {self.rows.value}")


class Staying(RunningCount):
    """Has segments, and puts out the number of its rows when its region is retired."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ballast = ctx.state.array("ballast", shape=(BALLAST,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.ballast += batch.num_rows
        yield from super().process(batch)

    def on_retire(self, ctx: hf.OperatorContext) -> pa.RecordBatch:
        row = {"region": [self.region], "id": [NONE], "seen": [self.rows.value], "of_key": [NONE]}
        return pa.RecordBatch.from_pydict(row, schema=COUNTED)


class Stuck(Staying):
    """Fails in one region while a file is missing."""

    def __init__(self, repaired: Path) -> None:
        super().__init__()
        self.repaired = repaired

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == STUCK and not self.repaired.exists():
            raise RuntimeError("in trouble")
        return super().process(batch)


class Large(RunningCount):
    """Replaces all rows of a table in each batch, by rows that cannot be compressed."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.table = ctx.state.table("large", key=pa.int64(), value=pa.binary())

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == REGIONS[0]:
            found = [row for rows in self.table.scan() for row in rows.to_pylist()]
            if sorted(row["value"] for row in found) != sorted(self.rows_at(self.rows.value)):
                raise AssertionError(f"found rows that do not go with {self.rows.value}")
            values = list(self.rows_at(self.rows.value + batch.num_rows))
            self.table.upsert(np.arange(LARGE_ROWS), pa.array(values))
        yield from super().process(batch)

    def rows_at(self, count: int) -> Iterator[bytes]:
        random = np.random.default_rng(count)
        return (random.bytes(LARGE_ROW_BYTES) for _ in range(LARGE_ROWS if count else 0))


class FailingOnce(WithBallast, Placed):
    """Fails at the first row of the second file."""

    def is_to_fail(self, first_id: int) -> bool:
        return first_id == 1000


def opened(pipeline: Any, folder: Path, **options: Any) -> hf.LocalQuery:
    query: hf.LocalQuery = pipeline.write_parquet(folder / "out").open_local(
        folder / "ckpt",
        num_retained=1,
        max_file_bytes=MAX_FILE_BYTES,
        tolerable_failed_checkpoints=2,
        **options,
    )
    return query


def run_rows(folder: Path, comes_to: Callable[[str], None], *, data_ends: bool) -> None:
    """Gives all batches from the start: batches in a checkpoint are skipped (R74)."""
    pipeline = hf.regional(region_by="region")
    operator = Ballasted(folder / "mark")
    counted = pipeline.apply(operator, schema=COUNTED, name="count")
    ids = counted.side("ids", schema=IDS).write_parquet(folder / "ids")
    with opened(ids, folder) as query:
        for number, rows in enumerate(BATCHES):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        if not data_ends:
            query.finish()
            return
        comes_to("end")
        before_publication(lambda: comes_to("last"))
        query.end_of_data()


def run_splits(folder: Path) -> None:
    """Reads all files: splits that a checkpoint covers are not handed out again."""
    pipeline = hf.regional(splits_of(folder, splits_per_region=1))
    operator = FailingOnce(folder / "mark")
    with opened(pipeline.apply(operator, schema=PLACED, name="placed"), folder) as query:
        query.run_available()
        query.finish()


def run_retire(folder: Path) -> None:
    """Gives all batches from the start, each a step of time after the one before."""
    pipeline = hf.regional(region_by="region").apply(Staying(), schema=COUNTED, name="count")
    with opened(pipeline, folder, retire_idle=RETIRE_IDLE) as query:
        for number, rows in enumerate(STAYING):
            time.sleep(0.003)
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()


def run_timers(folder: Path) -> None:
    """Gives some batches from the start; timers of the region without rows are due in between."""
    pipeline = hf.regional(region_by="region")
    counted = pipeline.apply(Reminded(AWAY), schema=COUNTED, name="count")
    with opened(counted, folder) as query:
        for number, rows in enumerate(WAITING):
            time.sleep(0.003)
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()


def run_quarantine(folder: Path) -> None:
    """Gives all batches from the start, while a region is in quarantine."""
    tune_tasks(setattr, quarantine_pieces=PIECES)
    pipeline = hf.regional(region_by="region")
    operator = Stuck(folder / "repaired")
    counted = pipeline.apply(operator, schema=COUNTED, name="count")
    with opened(counted, folder, quarantine_after=1) as query:
        for number, rows in enumerate(BATCHES):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()


def run_large(folder: Path) -> None:
    """Gives all batches from the start."""
    pipeline = hf.regional(region_by="region").apply(Large(), schema=COUNTED, name="count")
    with opened(pipeline, folder) as query:
        for number, rows in enumerate(LARGE_BATCHES):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()


def before_publication(call: Callable[[], None]) -> None:
    """Calls something when the next checkpoint is about to be published."""
    publish = CheckpointFolders.publish

    def call_and_publish(self: CheckpointFolders, metadata: CheckpointMetadata) -> None:
        call()
        publish(self, metadata)

    CheckpointFolders.publish = call_and_publish  # type: ignore[method-assign]


def outcome(case: str, what: str, origin: str, folder: Path, nth: int) -> str:
    """Runs the pipeline in a process of its own; returns its end."""

    def comes_to(where: str) -> None:
        if where == origin:
            getattr(ctypes.CDLL(None), what)(nth)

    child = os.fork()
    if child == 0:
        try:
            comes_to("start")
            if case == "splits":
                run_splits(folder)
            elif case == "retire":
                run_retire(folder)
            elif case == "timers":
                run_timers(folder)
            elif case == "large":
                run_large(folder)
            elif case == "quarantine":
                run_quarantine(folder)
            else:
                run_rows(folder, comes_to, data_ends=case in ENDING)
            os._exit(0)
        except (OSError, hf.RegionalQueryError):
            os._exit(FAILED)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in ENDS:
        raise SystemExit(f"{folder}, {what}({nth}): expected one of {ENDS}, found {code}")
    return ENDS[code]


def seen_in(folder: Path) -> dict[str, Any]:
    """The rows of a reader of the output, and errors in the checkpoints."""
    checkpoint = folder / "ckpt"
    ids = checkpoint_ids(checkpoint) if (checkpoint / "metadata").exists() else []
    verification = Verification(checkpoint)
    verdicts = [verification.verify(number, lambda done, of: None) for number in ids]
    entries = list(CheckpointFolders(checkpoint).read(ids[-1]).regions.values()) if ids else []
    return {
        "rows": output_of(folder / "out"),
        "ids": output_of(folder / "ids"),
        "checkpoints": ids,
        "finished": sum(entry.finished for entry in entries),
        "regions": len(entries),
        "quarantined": [entry.region for entry in entries if in_quarantine(entry)],
        "damage": [damage.message for verdict in verdicts for damage in verdict.damage],
    }


def files_of(folder: Path) -> dict[str, list[str]]:
    """Files by the folder they are in, without the claims of managers, which have the number 0."""
    return {
        part: sorted(
            path.name
            for path in (folder / part).rglob("*")
            if path.is_file() and not path.name.endswith("-00000000.hf")
        )
        for part in ("ckpt/segments", "ckpt/metadata", "out/_holdfast", "ids/_holdfast")
    }


def needed_segment_files(folder: Path) -> list[str]:
    """Merged files that the latest checkpoint has segments in."""
    latest = max(checkpoint_ids(folder / "ckpt"))
    entries = CheckpointFolders(folder / "ckpt").read(latest).regions.values()
    return sorted({ref.file for entry in entries for _, _, ref in entry.refs()})


def run(case: str, what: str, folder: Path, nth: int) -> dict[str, Any]:
    """One pipeline from its start to its end, through both of its failures."""
    folder.mkdir()
    if case == "splits":
        for number in range(FILES):
            write_ids(folder / "in", number)
    outcomes, after = [], []
    # Early and late in the restart, combined with any first failure.
    for point in (nth, 1 + nth * 17 % RESTART_CHANGES, 0):
        origin = "start" if outcomes or case not in ENDING else case
        if not point:
            (folder / "repaired").touch()
        outcomes.append(outcome(case, what, origin, folder, point))
        after.append(seen_in(folder))
    return {
        "outcomes": outcomes,
        "after": after,
        "files": files_of(folder),
        "needed": needed_segment_files(folder),
    }


def main(case: str, what: str, folder: Path, first: int, step: int) -> None:
    for nth in itertools.count(first, step):
        result = run(case, what, folder / str(nth), nth)
        print(json.dumps(result))
        shutil.rmtree(folder / str(nth))
        # A failure may do no harm, so the last one cannot be recognised.
        if nth > FAILURES or (what == "die_before" and result["outcomes"][0] == "done"):
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
