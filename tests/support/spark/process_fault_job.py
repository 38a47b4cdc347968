"""Runs queries of the fault report on orders of its standard input, for tests of dying processes.

``process_fault_job.py PROVIDER FOLDER [--master MASTER] [--preload LIBRARIES] [--set KEY=VALUE]``.
A line of input is JSON: the name of a query, the folder of its input, a folder for its sink, the
location of its checkpoint, a number of executors, a signal, and seconds. The query takes in all
input within these seconds. When its sink has the rows of the first batch, it sends the signal to so
many executors. The answer is a line of JSON: "ended", "error" with the reason, or "hangs".

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

from support.spark import processes
from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import REPORTED, first_line, session
from support.spark.queries import canonical

ANSWER = "answer: "


def sink(folder: Path, executors: int, sent: int) -> Callable[[DataFrame, int], None]:
    """Return the function for the rows of a batch, which sends a signal to executors, once."""
    folder.mkdir(exist_ok=True)
    doomed = processes.executors(os.getsid(0))[:executors]

    def take(batch: DataFrame, number: int) -> None:
        text = json.dumps(canonical(batch.collect()))
        while doomed:
            os.kill(doomed.pop(), sent)
        kept = folder / f"{number}.json"
        if kept.exists() and kept.read_text() != text:
            kept = folder / f"{number}.other"
        staged = folder / f".{kept.name}.{os.getpid()}.{threading.get_ident()}"
        staged.write_text(text)
        staged.rename(kept)

    return take


def run(spark: SparkSession, order: dict[str, Any]) -> tuple[str, str]:
    """Let a query take in all input; return its end, and the reason."""
    world, checkpoint = Path(order["world"]), order["checkpoint"]
    query, mode, *_ = QUERIES[order["query"]]
    try:
        started = (
            query(spark, Path(order["inputs"]))
            .writeStream.outputMode(mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(sink(world / "sink", order["executors"], order["signal"]))
            .start()
        )
        try:
            return ("ended" if started.awaitTermination(order["patience_s"]) else "hangs"), ""
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
        answer = run(spark, json.loads(line))
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
