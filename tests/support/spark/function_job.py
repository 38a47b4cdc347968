"""A regional pipeline on Spark whose rows go to a Delta table. Run as a program.

The function is that of ``docs/regional/delta-and-kafka.md``, word for word. With ``--kill POINT``
the job kills its own process group, JVM included, around the call for batch ``--at``: when the
function was ``called``, in the ``middle`` of its write, when it ``returned`` without a note, or
when that was ``noted``. Every call is a line of ``calls.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

import holdfast
from holdfast.regions.sinks import batch_function
from support import TESTS
from support.regional import pipelines
from support.regional.pipelines import COUNTED, RunningCount
from support.spark.queries import builder
from support.spark.readme import blocks
from support.spark.regional_input import regional_source

POINTS = ("called", "middle", "returned", "noted")
REGIONS = [f"r{number:02}" for number in range(4)]
DOCUMENT = TESTS.parent / "docs" / "regional" / "delta-and-kafka.md"


def recipe(table: Path) -> dict[str, Any]:
    """The names of the document's program, with another table."""
    (program,) = (
        block.text
        for block in blocks(DOCUMENT)
        if block.text.startswith("from deltalake import CommitProperties")
    )
    names: dict[str, Any] = {}
    exec(compile(program, str(DOCUMENT), "exec"), names)  # noqa: S102 - what readers do
    assert "TABLE" in names
    names["TABLE"] = str(table)
    return names


def die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def die_while_writing(table: Path) -> None:
    """End as soon as a new file of rows exists: before its commit, or just after it."""
    before = set(table.glob("*.parquet"))

    def watch() -> None:
        while not set(table.glob("*.parquet")) - before:
            threading.Event().wait(0.001)
        die()

    threading.Thread(target=watch, daemon=True).start()


def observed(
    folder: Path, point: str | None, at: int
) -> Callable[[DataFrame, holdfast.CheckpointId], None]:
    """The function, with the points around its calls."""
    table = folder / "table"
    append_once, note = recipe(table)["append_once"], batch_function.note_delivered

    def passes(now: str, batch: int) -> bool:
        return (now, batch) == (point, at)

    def function(rows: DataFrame, checkpoint: holdfast.CheckpointId) -> None:
        got = sorted(list(row) for row in rows.collect())
        call = [int(checkpoint), checkpoint.batch_id, checkpoint.pipeline_id, got]
        with (folder / "calls.jsonl").open("a") as calls:
            calls.write(json.dumps(call) + "\n")
        if passes("called", checkpoint.batch_id):
            die()
        if passes("middle", checkpoint.batch_id):
            die_while_writing(table)
        append_once(rows, checkpoint)

    def note_or_die(output: Any, checkpoint: holdfast.CheckpointId) -> None:
        if passes("returned", checkpoint.batch_id):
            die()
        note(output, checkpoint)
        if passes("noted", checkpoint.batch_id):
            die()

    batch_function.note_delivered = note_or_die  # type: ignore[assignment]
    return function


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kill", choices=POINTS)
    parser.add_argument("--at", type=int, default=0, help="batch to die in")
    args = parser.parse_args()
    folder: Path = args.folder
    # Python workers do not find this module: its classes are pickled by value.
    cloudpickle.register_pickle_by_value(pipelines)
    spark = holdfast.configure(builder("local[2]", folder / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = (
        holdfast.regional(regional_source(spark, folder / "in"), region_by="region")
        .apply(RunningCount(), schema=COUNTED, name="count")
        .foreach_batch(observed(folder, args.kill, args.at))
        .start(folder / "ckpt", trigger={"availableNow": True})
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
