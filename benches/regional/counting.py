"""An operator for very many regions, which notes when it saw rows; workers import it."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

import pyarrow as pa

from holdfast import Operator, OperatorContext

COUNTS = pa.schema([("region", pa.string()), ("rows", pa.int64())])
KEYS = 32


class Counts(Operator):
    """Counts rows; only one region in `every` puts something out.

    A sink that writes a file for each region would take most of the time.

    Parameters
    ----------
    marks
        Folder for the times at which rows were processed, one file for each worker.
    every
        How many regions there are for one that puts out a row.
    """

    region_safe = True

    def __init__(self, marks: str, *, every: int) -> None:
        self.marks = marks
        self.every = every

    def open(self, ctx: OperatorContext) -> None:
        self.region = ctx.region
        self.speaks = int(ctx.region.rpartition("-")[2]) % self.every == 0
        self.counts = ctx.state.array("counts", shape=(KEYS,), dtype="int64")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.counts[batch.column("id").to_numpy() % KEYS] += 1
        if self.speaks:
            columns = {"region": [self.region], "rows": [int(self.counts.sum())]}
            yield pa.RecordBatch.from_pydict(columns, schema=COUNTS)
        os.pwrite(_mark(self.marks), struct.pack("d", time.time()), 0)


_OPEN: dict[str, int] = {}


def _mark(folder: str) -> int:
    """Return the file of this worker, open."""
    path = f"{folder}/{os.getpid()}"
    if path not in _OPEN:
        _OPEN[path] = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    return _OPEN[path]
