"""A regional pipeline whose tables have many keys. Run as a program.

Takes all rows of an input folder, puts out the number of missing values that they expected, and
prints the most resident memory of its JVM.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

import holdfast
from support.spark.moves_memory_job import peak
from support.spark.queries import builder
from support.spark.regional_input import TASKS

FOUND = pa.schema(
    [("region", pa.string()), ("rows", pa.int64()), ("wrong", pa.int64()), ("keys", pa.int64())]
)


class Newest(holdfast.Operator):
    """Keeps the value ``after`` of each key, and counts rows with another ``before``."""

    region_safe = True

    def open(self, ctx: holdfast.OperatorContext) -> None:
        self.region = ctx.region
        self.newest = ctx.state.table("newest", key=pa.int64(), value=pa.int64())

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = self.newest.get(batch["key"])["value"]
        # No value is negative.
        same = pc.equal(pc.fill_null(found, -1), pc.fill_null(batch["before"], -1))
        wrong = batch.num_rows - pc.sum(same).as_py()
        self.newest.upsert(batch["key"], batch["after"])
        row = [[self.region], [batch.num_rows], [wrong], [len(self.newest)]]
        return pa.record_batch(row, schema=FOUND)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    spark = holdfast.configure(builder("local[2]", folder / "warehouse")).getOrCreate()
    rows = (
        spark.readStream.schema("region string, key long, before long, after long")
        .option("maxFilesPerTrigger", TASKS)
        .parquet(str(folder / "input" / "*"))
    )
    query = (
        holdfast.regional(rows, region_by="region")
        .apply(Newest(), schema=FOUND)
        .write_parquet(folder / "output")
        .start(folder / "checkpoint", trigger={"availableNow": True})
    )
    query.awaitTermination()
    print(peak(spark))
    spark.stop()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    main()
