"""A query that isolates failures, and its restarts. Run as a program.

Each phase feeds batches and runs the query until they are used up: ``bad:0-6`` with the broken
program, ``good:6-7`` with the repaired one. ``bad!:0-6`` expects that the query fails.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException

import holdfast
from support.spark.isolation import PARTITIONS, feed, results, run, state
from support.spark.queries import builder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sink", default="foreach")
    parser.add_argument("--query", default="counts")
    parser.add_argument("--off", action="store_true", help="without isolation")
    parser.add_argument("--rerun", default="fail")
    parser.add_argument("--ratio", type=float, default=0.75, help="partitions that may be parked")
    parser.add_argument("--batches", type=int, default=100, help="batches that may be parked")
    parser.add_argument("--block", type=int, default=-1, help="batch behind whose write it waits")
    parser.add_argument("phases", nargs="+")
    args = parser.parse_args()
    settings = builder(args.master, args.folder / "warehouse").config(
        "spark.sql.shuffle.partitions", str(PARTITIONS)
    )
    spark = holdfast.configure(
        settings,
        isolate_failures=not args.off,
        isolation_rerun=args.rerun,
        isolation_max_ratio=args.ratio,
        isolation_max_batches=args.batches,
    ).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def after(batch: int) -> None:
        if batch == args.block:
            (args.folder / "blocked").touch()
            time.sleep(240)

    for phase in args.phases:
        kind, _, batches = phase.partition(":")
        begin, _, end = batches.partition("-")
        feed(args.folder / "input", range(int(begin), int(end)))
        failure = ""
        try:
            run(
                spark,
                args.folder,
                query=args.query,
                program=kind.rstrip("!"),
                sink=args.sink,
                after=after,
            )
        except StreamingQueryException as e:
            failure = str(e)
        assert bool(failure) == kind.endswith("!"), failure or "the query did not fail"
    found = {
        "rows": results(spark, args.folder, args.sink),
        "state": state(spark, args.folder, args.query),
    }
    (args.folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
