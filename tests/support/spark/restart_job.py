"""A job that counts by key until its input is used up.

Run as a program, it prints as one line of JSON, by batch, the number of counts and their sum; and
the number of stores that the first batch of the run opened.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import functions as F

import holdfast
from support.spark.queries import Batches, builder, configured, drain, source


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    counted = source(spark, args.folder / "input").groupBy("key").agg(F.count("*").alias("n"))
    rows: Batches = {}
    query = drain(counted, checkpoint=args.checkpoint, mode="complete", into=rows)
    (operator,) = query.recentProgress[0]["stateOperators"]
    print(
        json.dumps(
            {
                "rows": {
                    batch: [len(found), sum(n for _, n in found)] for batch, found in rows.items()
                },
                "loads": operator["customMetrics"]["holdfastLoads"],
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
