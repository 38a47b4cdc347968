"""A job without Spark's maintenance, and with more state than its memory.

Run as a program, it prints as one line of JSON, batch by batch, the bytes of state in memory, its
runs and the changelogs outside of runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import holdfast
from support.spark.counted_texts import CountedTexts
from support.spark.queries import STATE, builder, configured

KEYS = 4_000
BATCHES = 40
KEYS_A_BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    session = session.config("spark.sql.shuffle.partitions", "1")
    session = session.config(STATE + "maintenanceInterval", "1h")
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    query = CountedTexts(spark, args.folder)
    found = []
    counts = dict.fromkeys(range(KEYS), 0)
    for batch in range(BATCHES):
        start = batch * KEYS_A_BATCH % KEYS
        # With some earlier keys.
        keys = range(max(0, start - KEYS_A_BATCH // 4), start + KEYS_A_BATCH)
        for key in keys:
            counts[key] += 1
        counted = query.feed(keys)
        assert counted == {key: counts[key] for key in keys}, batch
        operator = query.operator()
        metrics = operator["customMetrics"]
        found.append(
            [operator["memoryUsedBytes"], metrics["holdfastRuns"], metrics["holdfastUnmerged"]]
        )
    query.stop()
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
