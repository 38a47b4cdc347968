"""Runs a pipeline with array states of one array module; or kills it at every step of a device.

``device_job.py MODULE FOLDER`` runs the pipeline in FOLDER to its end.

``device_job.py MODULE FOLDER STEP`` runs pipelines in FOLDER/n, n = 1, 1 + STEP, and so on: a
process dies before its n-th call of the device, another one completes the pipeline. It ends with
the first n that no process reaches, and prints the number.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from support.regional import array_modules

ROWS = pa.schema([("region", pa.string()), ("key", pa.int64())])
SUMMED = ROWS.append(pa.field("sum", pa.float64()))
#: Items of an array: four chunks, and room for one copy.
ITEMS = 400_000
#: Keys of the batches: all chunks change, then one, then more than fit, then one.
BATCHES = [
    np.arange(0, ITEMS, 1000),
    np.array([7]),
    np.array([7, 150_000, 300_000]),
    np.array([399_999]),
    np.array([8, 399_999]),
]
REGIONS = ["a", "b"]
DEVICE_CALLS = ("copy", "digests", "room", "set_aside", "upload")
LANE_CALLS = ("digests", "unchanged", "fetch")


class Sums(hf.Operator):
    """Adds up values by key, also in an array whose changes are found by comparison."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.xp = ctx.xp
        self.sums = ctx.state.array("sums", shape=(ITEMS,), dtype="float64")
        self.exact = ctx.state.array("exact", shape=(ITEMS,), dtype="float64", exact=True)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = self.xp.asarray(batch.column("key").to_numpy())
        if not bool((self.sums == self.exact).all()):
            raise AssertionError("one array is older than the other")
        self.xp.add.at(self.sums, keys, 1.0)
        self.exact[...] = self.sums
        yield batch.append_column("sum", pa.array(array_modules.on_host(self.sums[keys])))


def run(folder: Path, xp: Any) -> None:
    """Give all batches: batches in a checkpoint are skipped."""
    writer = (
        hf.regional(region_by="region")
        .apply(Sums(), schema=SUMMED, name="sums")
        .write_parquet(folder / "out")
    )
    with writer.open_local(folder / "ckpt", num_retained=1, gpu=xp is not np) as query:
        for number, keys in enumerate(BATCHES):
            rows = [
                pa.record_batch({"region": [region] * len(keys), "key": keys}, schema=ROWS)
                for region in REGIONS
            ]
            query.run_batch([rows], batch_id=number)
        query.finish()


def output_of(folder: Path) -> list[tuple[str, int, float]]:
    """Rows of a pipeline, sorted."""
    rows: list[tuple[str, int, float]] = []
    for file in (folder / "out").glob("part-*"):
        table = pq.read_table(file)
        rows.extend(zip(*(table.column(name).to_pylist() for name in SUMMED.names), strict=True))
    return sorted(rows)


def expected() -> list[tuple[str, int, float]]:
    """Rows of a pipeline that ran to its end."""
    seen = np.zeros(ITEMS)
    rows = []
    for keys in BATCHES:
        np.add.at(seen, keys, 1.0)
        rows += [(region, int(key), float(seen[key])) for region in REGIONS for key in keys]
    return sorted(rows)


def die_at(nth: int, xp: Any) -> None:
    """Kill this process before its n-th call of the device."""
    calls = itertools.count(1)
    device = array_modules.device_of(xp)
    with device.lane() as lane:
        kinds = [(type(device), DEVICE_CALLS), (type(lane), LANE_CALLS)]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return count_and_call

    for kind, names in kinds:
        for name in names:
            setattr(kind, name, counted(getattr(kind, name)))


def in_child(run_there: Callable[[], None]) -> int:
    """Run in another process, before this one uses a device."""
    child = os.fork()
    if child == 0:
        try:
            run_there()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main(module: str, folder: Path, step: int | None) -> None:
    def to_the_end(place: Path, nth: int | None = None) -> None:
        xp = array_modules.array_module(module, setattr)
        if nth is not None:
            die_at(nth, xp)
        run(place, xp)

    if step is None:
        to_the_end(folder)
        return
    for nth in itertools.count(1, step):
        place = folder / str(nth)
        ended = in_child(lambda place=place, nth=nth: to_the_end(place, nth))  # type: ignore[misc]
        if ended == 0:
            print(nth)
            return
        if ended != -signal.SIGKILL or in_child(lambda place=place: to_the_end(place)) != 0:  # type: ignore[misc]
            sys.exit(f"{place}: the first process ended with {ended}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
