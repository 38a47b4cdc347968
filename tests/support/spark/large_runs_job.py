"""A job whose maintenance writes runs of 5 MiB. Run as a program.

The state is the greatest payload of every key, on four partitions. Batch 1 changes all of it. When
maintenance has merged that, batch 2 changes some keys. The program prints, as one line of JSON, the
number of runs in each physical file before batch 2, the changelogs that are in no run after it, and
the sum of the lengths of all payloads.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import holdfast
from support.spark.queries import STATE, builder, configured, source, write_batch
from support.spark.state_files import merged_files, runs_in

PARTITIONS = 4
KEYS = 5_200 * PARTITIONS
PAYLOAD_BYTES = 1_000
GIVE_UP_SECONDS = 120


def rows(first: str, keys: int, dice: random.Random) -> list[dict[str, Any]]:
    """Rows whose payloads are greater for a greater first letter, and do not compress."""
    letters = string.ascii_letters + string.digits + "-_"
    return [
        {"key": key, "payload": first + "".join(dice.choices(letters, k=PAYLOAD_BYTES - 1))}
        for key in range(keys)
    ]


def wait_for_runs(checkpoint: Path) -> list[int]:
    """Wait until all partitions have a run that readers see; returns their number by file."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        found = [runs_in(file) for file in merged_files(checkpoint)]
        if sum(found) >= PARTITIONS:
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected {PARTITIONS} runs, found {found}")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--files", type=Path, required=True, help="the checkpoint as local files")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    session = session.config("spark.sql.shuffle.partitions", str(PARTITIONS))
    session = session.config(STATE + "minDeltasForSnapshot", "1")
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    dice = random.Random(1)  # noqa: S311
    folder = args.folder / "input"
    folder.mkdir()
    write_batch(folder, 0, rows("a", KEYS, dice))
    query = (
        source(spark, folder)
        .groupBy("key")
        .agg(F.max("payload").alias("payload"))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", args.checkpoint)
        .start()
    )
    query.processAllAvailable()
    write_batch(folder, 1, rows("b", KEYS, dice))
    query.processAllAvailable()
    runs = wait_for_runs(args.files)
    write_batch(folder, 2, rows("c", 100, dice))
    query.processAllAvailable()
    progress = next(p for p in reversed(query.recentProgress) if p["numInputRows"] > 0)
    unmerged = progress["stateOperators"][0]["customMetrics"]["holdfastUnmerged"]
    query.stop()
    state = spark.read.format("statestore").load(args.checkpoint)
    payloads = state.select(F.length("value.max").alias("bytes"))
    total = payloads.agg(F.sum("bytes")).first()
    spark.stop()
    assert total is not None
    print(json.dumps({"runs": runs, "unmerged": unmerged, "bytes": total[0]}))


if __name__ == "__main__":
    main()
