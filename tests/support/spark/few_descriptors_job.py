"""A join of streams whose stores have many runs. Run as a program, with few file descriptors.

Each partition has four stores, which keep nothing in memory that a run has. Batches put rows into
all stores until there are as many runs; then every row of one side finds those of the other. The
program prints, as one line of JSON, the runs of the newest commits, the number of batches, and the
open files of the JVM.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import holdfast
from support.spark.counted_texts import KIND, RUN
from support.spark.queries import EVICTING, STATE, builder, source, write_batch
from support.spark.state_files import commit_ids, lineage

GIVE_UP_SECONDS = 200


def side(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    """Rows of one side: a key and the batch of the row."""
    rows = source(spark, folder / name)
    return rows.select(sf.col("key").alias(f"{name}_key"), sf.col("batch").alias(f"{name}_batch"))


def runs(checkpoint: Path) -> int:
    """The number of runs in the newest commits, of all stores."""
    newest = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (operator,) = commit_ids(checkpoint, newest).values()
    ids = {store_id for partition in operator for store_id in partition}
    built_on = {segment for store_id in ids for segment in lineage(checkpoint, store_id)}
    return sum(dict(segment.head(checkpoint))[KIND] == RUN for segment in built_on)


def files_open(spark: SparkSession) -> dict[str, int]:
    """Descriptors of the JVM, and the number of them for physical files."""
    jvm: Any = spark._jvm
    descriptors = Path("/proc", str(jvm.ProcessHandle.current().pid()), "fd")
    names = []
    for descriptor in descriptors.iterdir():
        with suppress(FileNotFoundError):
            names.append(descriptor.readlink().name)
    return {"descriptors": len(names), "files": sum(name.endswith(".hf") for name in names)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--max-file-bytes", type=int, required=True)
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    session = session.config("spark.sql.shuffle.partitions", str(args.partitions))
    session = session.config(STATE + "holdfast.maxFileBytes", str(args.max_file_bytes))
    # Spark would write a file for each partition at once.
    session = session.config("spark.shuffle.sort.bypassMergeThreshold", "1")
    for key, value in EVICTING.items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    checkpoint = args.folder / "checkpoint"
    fed = 0

    def feed(left: range, right: range) -> None:
        nonlocal fed
        for name, keys in (("left", left), ("right", right)):
            folder = args.folder / name
            folder.mkdir(exist_ok=True)
            write_batch(folder, fed, [{"key": key, "batch": fed} for key in keys])
        fed += 1

    keys, others = range(args.keys), range(args.keys, 2 * args.keys)
    feed(keys, others)
    pairs: list[tuple[Any, ...]] = []
    joined = side(spark, args.folder, "left").join(
        side(spark, args.folder, "right"), sf.expr("left_key = right_key")
    )
    query = (
        joined.writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda batch, _: pairs.extend(tuple(row) for row in batch.collect()))
        .start()
    )
    query.processAllAvailable()
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while (found := runs(checkpoint)) < 4 * args.partitions:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} runs after {fed} batches")
        feed(keys, others)
        query.processAllAvailable()
    batches = fed
    # Every row of the left side is read from a run, if it is not in a changelog yet.
    feed(others, keys)
    query.processAllAvailable()
    of_keys = [pair for pair in pairs if pair[0] in keys]
    assert sorted(of_keys) == [
        (key, batch, key, batches) for key in keys for batch in range(batches)
    ]
    open_files = files_open(spark)
    query.stop()
    spark.stop()
    print(json.dumps({"runs": runs(checkpoint), "batches": fed, **open_files}))


if __name__ == "__main__":
    main()
