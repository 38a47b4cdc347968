"""The rows and the operator of the pipelines that are measured; workers import it, too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from holdfast import Operator, OperatorContext
from holdfast.regions.base.splitting import split_by_region

KEYS = 1024
TASKS = 2

ROWS = pa.schema(
    [
        ("region", pa.string()),
        ("id", pa.int64()),
        ("time_us", pa.int64()),
        ("key", pa.int32()),
        ("value", pa.float64()),
        ("weight", pa.float64()),
    ]
)
ROWS_DDL = "region string, id long, time_us long, key int, value double, weight double"
DEVIATIONS = pa.schema(
    [
        ("region", pa.string()),
        ("id", pa.int64()),
        ("key", pa.int32()),
        ("mean", pa.float64()),
        ("deviation", pa.float64()),
    ]
)
_DEVIATION = Row(*DEVIATIONS.names)
DEVIATIONS_DDL = "region string, id long, key int, mean double, deviation double"


class Deviations(Operator):
    """Puts out every row with the weighted mean of its key so far, and how far it is from that.

    Parameters
    ----------
    failing
        Region that raises at its first row; none if empty.
    slow
        Region that waits for every row; none if empty.
    wait_s
        How long it waits, in seconds per row.
    """

    region_safe = True

    def __init__(self, *, failing: str = "", slow: str = "", wait_s: float = 0.0) -> None:
        self.failing = failing
        self.slow = slow
        self.wait_s = wait_s

    def open(self, ctx: OperatorContext) -> None:
        self.fails = ctx.region == self.failing
        self.waits = ctx.region == self.slow
        self.sums = ctx.state.array("sums", shape=(2, KEYS))

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.fails:
            raise RuntimeError("the benchmark wants this region to fail")
        if self.waits:
            time.sleep(self.wait_s * batch.num_rows)
        return deviations(batch, self.sums)


class DeviationsByKey(Operator):
    """Puts out every row with the mean of its id so far; the sums are in a table."""

    region_safe = True

    def open(self, ctx: OperatorContext) -> None:
        self.sums = ctx.state.table(
            "sums", key={"id": pa.int64()}, value={"sum": pa.float64(), "rows": pa.int64()}
        )

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = pa.table(batch)
        new = rows.group_by("id").aggregate([("value", "sum"), ("value", "count")])
        old = self.sums.get(new)
        sums = pc.add(new["value_sum"], pc.fill_null(old["sum"], 0))
        counts = pc.add(new["value_count"], pc.fill_null(old["rows"], 0))
        self.sums.upsert(pa.table({"id": new["id"], "sum": sums, "rows": counts}))
        means = pc.round(pc.divide(sums, counts), 3)
        mean = means.take(pc.index_in(rows["id"], new["id"]))
        deviation = pc.round(pc.subtract(rows["value"], mean), 3)
        columns = [rows["region"], rows["id"], rows["key"], mean, deviation]
        return pa.table(columns, schema=DEVIATIONS).combine_chunks().to_batches()[0]


class SparkDeviationsByKey(StatefulProcessor):
    """The same for Spark's `transformWithState`, with a value for each region and id."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sums = handle.getValueState("sums", "sum double, rows long")

    def handleInputRows(  # noqa: N802 - the name in Spark
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        batch = list(rows)
        total, count = self._sums.get() if self._sums.exists() else (0.0, 0)
        total += sum(row.value for row in batch)
        count += len(batch)
        self._sums.update((total, count))
        mean = round(total / count, 3)
        for row in batch:
            yield _DEVIATION(*key, row.key, mean, round(row.value - mean, 3))

    def close(self) -> None:
        """Nothing to close."""


def deviations(batch: pa.RecordBatch, sums: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Add rows to `sums` (weights and weighted values, shape (2, KEYS)) and compare them."""
    keys = batch.column("key").to_numpy()
    values = batch.column("value").to_numpy()
    weights = batch.column("weight").to_numpy()
    sums[0] += np.bincount(keys, weights=weights, minlength=KEYS)
    sums[1] += np.bincount(keys, weights=weights * values, minlength=KEYS)
    means = np.round(sums[1] / np.maximum(sums[0], 1e-9), 3)[keys]
    columns = [
        batch.column("region"),
        batch.column("id"),
        batch.column("key"),
        pa.array(means),
        pa.array(np.round(values - means, 3)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEVIATIONS)


def region_names(regions: int) -> list[str]:
    """Names of the regions."""
    return [f"shard-{number:03}" for number in range(regions)]


def write_input(folder: Path, *, rows: int, regions: int, run_rows: int) -> list[str]:
    """Write the files of one micro-batch, one for each task; whole regions in each.

    The rows of a region come in runs of `run_rows`, and the regions of a file take turns.
    """
    if rows % (regions * run_rows):
        raise ValueError(f"{rows} rows are no whole number of runs for each of {regions} regions")
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    files = []
    for task in range(TASKS):
        names = pa.array(region_names(regions)[task::TASKS])
        count = rows // TASKS
        numbers = np.arange(count)
        columns = [
            names.take(pa.array(numbers // run_rows % len(names))),
            pa.array(numbers),
            pa.array(1_780_000_000_000_000 + numbers * 40),
            pa.array(random.integers(0, KEYS, count, dtype=np.int32)),
            pa.array(np.round(random.normal(100, 15, count), 2)),
            pa.array(np.round(random.uniform(0.5, 1.5, count), 2)),
        ]
        files.append(folder / f"rows-{task}.parquet")
        pq.write_table(pa.Table.from_arrays(columns, schema=ROWS), files[-1])
    return [str(file) for file in files]


def plain_task(
    batches: Iterable[pa.RecordBatch], *, folder: str, batch_id: int
) -> Iterator[pa.RecordBatch]:
    """Do the operator's work and write a file for each region: no state, checkpoint or sync."""
    sums: dict[str, Any] = {}
    outputs: dict[str, list[pa.RecordBatch]] = {}
    for region, output in _plain_outputs(batches, sums):
        outputs.setdefault(region, []).append(output)
    for region, parts in outputs.items():
        path = os.path.join(folder, f"part-{batch_id:010}-{region}.parquet")
        pq.write_table(pa.Table.from_batches(parts, DEVIATIONS), path, compression="zstd")
    yield pa.RecordBatch.from_pydict({"regions": pa.array([len(sums)], pa.int32())})


def plain_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the operator's work and hand the rows to Spark."""
    for _, output in _plain_outputs(batches, {}):
        yield output


def _plain_outputs(
    batches: Iterable[pa.RecordBatch], sums: dict[str, Any]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        for region, rows in split_by_region(batch, region_by="region"):
            if region not in sums:
                sums[region] = np.zeros((2, KEYS))
            yield region, deviations(rows, sums[region])
