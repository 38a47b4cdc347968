"""Runs queries of the fault report on orders of its standard input, for tests of dying processes.

``process_fault_job.py PROVIDER FOLDER [--master MASTER] [--preload LIBRARIES] [--set KEY=VALUE]``.
A line of input is JSON: the name of a query, the folder of its input, a folder for its sink, and
the location of its checkpoint. The query takes in all input. The answer is a line of JSON: "ended",
"error" with the reason, or "hangs".

The sink identifies a batch by its number: it keeps the first rows, and other rows with that number
next to them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import REPORTED, first_line, session
from support.spark.queries import canonical

#: Seconds after which a query that neither ends nor fails is abandoned.
PATIENCE_S = 100
ANSWER = "answer: "


def sink(folder: Path) -> Callable[[DataFrame, int], None]:
    """Return the function for the rows of a batch."""
    folder.mkdir(exist_ok=True)

    def take(batch: DataFrame, number: int) -> None:
        text = json.dumps(canonical(batch.collect()))
        kept = folder / f"{number}.json"
        if kept.exists() and kept.read_text() != text:
            kept = folder / f"{number}.other"
        staged = folder / f".{kept.name}.{os.getpid()}.{threading.get_ident()}"
        staged.write_text(text)
        staged.rename(kept)

    return take


def run(
    spark: SparkSession, name: str, inputs: Path, world: Path, checkpoint: str
) -> tuple[str, str]:
    """Let a query take in all input; return its end, and the reason."""
    query, mode, *_ = QUERIES[name]
    try:
        started = (
            query(spark, inputs)
            .writeStream.outputMode(mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(sink(world / "sink"))
            .start()
        )
        try:
            return ("ended" if started.awaitTermination(PATIENCE_S) else "hangs"), ""
        finally:
            started.stop()
    except Exception as error:
        said = first_line(error).replace(f"{world}/", "")
        return "error", said.replace(checkpoint.removesuffix("checkpoint"), "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", choices=REPORTED)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--preload", default="", help="libraries that the JVM begins with")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["LD_PRELOAD"] = args.preload
    spark = session(args.provider, args.master, args.folder, args.set)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        answer = run(
            spark,
            order["query"],
            Path(order["inputs"]),
            Path(order["world"]),
            order["checkpoint"],
        )
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
