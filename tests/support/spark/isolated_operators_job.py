"""Runs cases of the operator matrix with a key that fails, and isolates it. Run as a program.

Reads a line of JSON for each run: the case, the place of the failure and whether that is isolated.
It answers with a line of results.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.cases import CASES
from support.spark.group_state_cases import some_keys
from support.spark.isolation import ENDS_PARKED
from support.spark.java_side import instance
from support.spark.operator_cases import (
    DATA_BATCHES_ONLY,
    Case,
    Frames,
    distinct_with_watermark,
    late_after_10_minutes,
)
from support.spark.operator_inputs import events
from support.spark.queries import Batches, builder, drain, settings, source, write_batch


def jvm_timers(*, clock: bool) -> Case:
    """TimersJob.java. Its timers fire in a later batch; by the clock, it has data in any case."""

    def query(frames: Frames) -> DataFrame:
        stream = some_keys(frames)
        stream = (stream if clock else late_after_10_minutes(stream)).where("key is not null")
        build = instance(stream.sparkSession, "TimersJob")
        return DataFrame(build.apply(stream._jdf, clock), stream.sparkSession)

    return Case(query=query, mode="update", settings=DATA_BATCHES_ONLY if clock else {})


#: The operator matrix has no timers, lifetimes and maps of the JVM.
ALL_CASES = {
    **CASES,
    "transformWithStateOnJvm-event-timers-update": jvm_timers(clock=False),
    "transformWithStateOnJvm-processing-timers-ttl-update": jvm_timers(clock=True),
}
#: Batches that a program runs to the end. Each phase is a restart of the query.
PHASES = (("good", range(2)), ("bad", range(2, 5)), ("good", range(5, 6)))
ISOLATES = "spark.sql.streaming.stateStore.holdfast.isolateFailures"


def one_unless(fails: Column, program: str) -> Column:
    """One, and an error where a row fails in the broken program."""
    text = F.when(fails, "none").otherwise("1") if program == "bad" else F.lit("1")
    return text.cast("int").alias("number")


def failing_above(frame: DataFrame, program: str) -> DataFrame:
    """The rows of an operator. Rows of a key fail; without a key rows of every window."""
    named = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))
    if "key" in frame.columns:
        fails = F.col(f"c{frame.columns.index('key')}") == "k5"
    else:
        fails = F.minute("c0") >= 0
    return named.select("*", one_unless(fails, program))


def failing_below(frames: Frames, program: str) -> DataFrame:
    """Rows of a key fail in the stage of the first of two operators."""
    first = distinct_with_watermark(frames)
    passed = first.where(one_unless(F.col("key") == "k5", program) == 1)
    return passed.groupBy(F.window("time", "10 minutes")).count().select("window.start", "count")


def readers(spark: SparkSession, checkpoint: Path) -> Iterator[dict[str, Any]]:
    """Options of the state reader for all state of the operators of a query."""
    operators = spark.read.format("state-metadata").load(str(checkpoint))
    columns = ("operatorId", "operatorName", "operatorProperties")
    for operator in operators.select(*columns).distinct().collect():
        of_operator = {"operatorId": operator.operatorId}
        if operator.operatorName == "symmetricHashJoin":
            for side in ("left", "right"):
                yield {**of_operator, "joinSide": side}
        elif operator.operatorName.startswith("transformWithState"):
            properties = json.loads(operator.operatorProperties)
            for variable in properties["stateVariables"]:
                if not variable["stateName"].startswith("$"):
                    yield {**of_operator, "stateVarName": variable["stateName"]}
            if properties["timeMode"] != "NoTime":
                yield {**of_operator, "readRegisteredTimers": True}
        else:
            yield of_operator


def state(spark: SparkSession, checkpoint: Path, *, by_the_clock: bool) -> list[Any]:
    """The keys and values of all state after the last batch, or their number: some have times."""
    frames = [
        spark.read.format("statestore").options(**options).load(str(checkpoint)).collect()
        for options in readers(spark, checkpoint)
    ]
    return [len(rows) if by_the_clock else sorted(map(str, rows)) for rows in frames]


def run(
    spark: SparkSession, folder: Path, case: str, *, where: str, isolates: bool
) -> dict[str, Any]:
    """All rows of the sink, the state, the batches that parked, and the error of the query."""
    query = ALL_CASES[case]
    folders = {name: folder / name for name in query.streams}
    for path in folders.values():
        path.mkdir(parents=True)
    checkpoint = folder / "checkpoint"
    rows: Batches = {}
    failure = ""
    for program, batches in PHASES:
        for stream, path in enumerate(folders.values()):
            for batch in batches:
                write_batch(path, batch, events(stream)[batch])
        if not isolates:
            # The undisturbed run has the repaired program from the beginning.
            program = "good"
        elif where == "from the start":
            program = "bad"
        frames = {name: source(spark, path) for name, path in folders.items()}
        if where == "below":
            frame = failing_below(frames, program)
        else:
            frame = failing_above(query.query(frames), program)
        try:
            with settings(spark, {**query.settings, ISOLATES: str(isolates).lower()}):
                drain(frame, checkpoint=checkpoint, mode=query.mode, into=rows)
        except StreamingQueryException as e:
            if ENDS_PARKED not in str(e):
                failure = str(e)
                break
    by_the_clock = "processing" in case or "ttl" in case
    markers = sorted((checkpoint / "isolation").glob("[0-9]*"), key=lambda file: int(file.name))
    return {
        "rows": sorted(repr(row) for batch in rows.values() for row in batch),
        "state": [] if failure else state(spark, checkpoint, by_the_clock=by_the_clock),
        "parked": [int(file.name) for file in markers if json.loads(file.read_text())["parked"]],
        "failure": failure,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    args = parser.parse_args()
    session = builder("local[2,2]", args.folder / "warehouse").config(
        "spark.sql.shuffle.partitions", str(args.partitions)
    )
    spark = holdfast.configure(session, isolation_max_ratio=1).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for number in range(1_000_000):
        try:
            asked = json.loads(input())
        except EOFError:
            break
        folder = args.folder / str(number)
        try:
            answer = run(spark, folder, **asked)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
