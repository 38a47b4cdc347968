"""A regional pipeline that ``regional_soak.py`` kills again and again. Run as a program.

The trouble depends only on the seed, the batch and the region, so that it is the same after a
restart: some regions raise an exception, once or in several attempts, and some take so long over a
batch that its barrier overtakes their rows. One region fails until it is repaired. The job appends
every ended attempt to ``history.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

import holdfast
from holdfast.files.mounted import MountedPath
from holdfast.regions.files.folders import CheckpointFolders
from support.regional import pipelines
from support.regional.pipelines import COUNTED, RunningCount
from support.spark.queries import builder
from support.spark.regional_input import regional_source

#: Too much for the metadata, so that there are segments.
BALLAST = 300
#: Share of the regions of a batch that raise an exception, and of those that are slow.
RAISING, SLOW = 0.08, 0.08
#: The most attempts in a row with an exception of a region.
MAX_RAISED = 3
#: This region fails while the file `REPAIRED` is missing.
STUCK, REPAIRED = "r06", "repaired"
#: Regions that raise an exception for some time do not go into quarantine.
QUARANTINE_AFTER = 2 + MAX_RAISED
#: Numbers of batches that a region remembers.
KEPT_BATCHES = 5
#: Rows of a region are in several pieces, so that a barrier overtakes some.
ROWS_PER_ARROW_BATCH = 32
SLOW_PIECE_S = 0.2
ALIGNED_TIMEOUT = timedelta(milliseconds=250)
POLL_S = 0.2


class Soaked(RunningCount):
    """Counts rows in every kind of state, and checks that these belong together."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.marks = str(folder / "marks")
        self.repaired = str(folder / REPAIRED)
        self.seed = seed

    def open(self, ctx: holdfast.OperatorContext) -> None:
        super().open(ctx)
        self.ballast = ctx.state.array("ballast", shape=(BALLAST,), dtype="int64")
        self.batches = ctx.state.list("batches")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == STUCK and not Path(self.repaired).exists():
            raise RuntimeError("in trouble until it is repaired")
        number = batch.column("id")[0].as_py() // 1000
        if not (self.ballast == self.rows.value).all():
            raise AssertionError(f"ballast {self.ballast[:4]} does not go with {self.rows.value}")
        chance = random.Random(f"{self.seed} {number} {self.region}")  # noqa: S311
        # Once it is repaired, its rows are replayed in one attempt.
        kind = 1.0 if self.region == STUCK else chance.random()
        if kind < RAISING:
            self._raise_at_first(number, chance.randint(1, MAX_RAISED))
        elif kind < RAISING + SLOW:
            time.sleep(SLOW_PIECE_S)
        if number not in self.batches.items:
            self.batches.items[:] = [*self.batches.items[1 - KEPT_BATCHES :], number]
        self.ballast += batch.num_rows
        yield from super().process(batch)

    def _raise_at_first(self, number: int, times: int) -> None:
        """Raise an exception in the first `times` attempts, in any process."""
        for nth in range(times):
            try:
                (Path(self.marks) / f"{number}-{self.region}-{nth}").touch(exist_ok=False)
            except FileExistsError:
                continue
            raise RuntimeError(f"in trouble, {nth + 1} of {times}")


def follow(query: holdfast.RegionalQuery, file: Path, before: int) -> None:
    """Append every ended attempt after `before`, until the query ends."""
    newest = before
    ended = False
    with file.open("a") as lines:
        while not ended:
            ended = not query.isActive
            for record in query.history(last=100):
                if record.id <= newest:
                    continue
                newest = record.id
                attempt = {
                    "id": record.id,
                    "batch": record.batch_id,
                    "outcome": record.outcome,
                    "failed": len(record.failed),
                    "in_flight_rows": record.in_flight_rows,
                }
                lines.write(json.dumps(attempt) + "\n")
                lines.flush()
            time.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--heap-mib", type=int, required=True)
    args = parser.parse_args()
    # Python workers do not find these modules: their classes are pickled by value.
    cloudpickle.register_pickle_by_value(pipelines)
    folder: Path = args.folder
    settings = (
        builder("local[2]", folder / "warehouse")
        .config("spark.driver.memory", f"{args.heap_mib}m")
        # The whole heap from the start, so that only other memory grows later.
        .config("spark.driver.extraJavaOptions", f"-Xms{args.heap_mib}m -XX:+AlwaysPreTouch")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_ARROW_BATCH))
    )
    spark = holdfast.configure(settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    before = CheckpointFolders(MountedPath(folder / "ckpt")).read_last_attempt()
    query = (
        holdfast.regional(regional_source(spark, folder / "in"), region_by="region")
        .apply(Soaked(folder, args.seed), schema=COUNTED, name="count")
        .write_parquet(folder / "out")
        .start(
            folder / "ckpt",
            trigger={"availableNow": True},
            aligned_timeout=ALIGNED_TIMEOUT,
            # Half of the regions are in the task that loses its worker.
            max_failure_ratio=0.5,
            max_consecutive_failures=4,
            quarantine_after=QUARANTINE_AFTER,
            tolerable_failed_checkpoints=20,
            max_file_bytes=16 * 1024,
        )
    )
    follower = threading.Thread(target=follow, args=[query, folder / "history.jsonl", before])
    follower.start()
    query.awaitTermination()
    follower.join()
    spark.stop()


if __name__ == "__main__":
    main()
