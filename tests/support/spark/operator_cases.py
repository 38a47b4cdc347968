"""Queries of the operator matrix that need no Python worker, one per operator and output mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from support.spark.operator_inputs import ROWS

Frames = Mapping[str, DataFrame]
Row = tuple[Any, ...]

BOTH = ("events", "others")
BATCH_AND_A_HALF = 3 * ROWS // 2
DATA_BATCHES_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}

LATE = "numRowsDroppedByWatermark"
REMOVED = "numRowsRemoved"
DUPLICATES = "numDroppedDuplicateRows"

# A value of a joined row is null only if the other side found nothing.
JOINED = {
    "pairs": lambda row: row[1] is not None and row[4] is not None,
    "left rows alone": lambda row: row[4] is None,
    "right rows alone": lambda row: row[1] is None,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query: streams in, rows out.

    Attributes
    ----------
    query
        From the streams, by name, to the frame that the sink writes.
    mode
        Output mode.
    streams
        The streams it reads.
    settings
        Further Spark settings of the query than the provider.
    shows
        Rows that the case must show, by name: there must be some of each.
    counts
        Numbers in Spark's progress that must be above 0.
    """

    query: Callable[[Frames], DataFrame]
    mode: str
    streams: tuple[str, ...] = ("events",)
    settings: Mapping[str, str] = field(default_factory=dict)
    shows: Mapping[str, Callable[[Row], bool]] = field(default_factory=dict)
    counts: tuple[str, ...] = ()


def late_after_10_minutes(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("time", "10 minutes")


def count_and_sum(frames: Frames) -> DataFrame:
    return frames["events"].groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("s"))


def windows(frames: Frames) -> DataFrame:
    return (
        late_after_10_minutes(frames["events"])
        .groupBy(F.window("time", "5 minutes"), "key")
        .agg(F.count("*").alias("n"), F.max("value").alias("m"))
        .select("window.start", "window.end", "key", "n", "m")
    )


def sessions(frames: Frames) -> DataFrame:
    return (
        late_after_10_minutes(frames["events"])
        .groupBy(F.session_window("time", "90 seconds"), "key")
        .agg(F.count("*").alias("n"), F.max("value").alias("m"))
        .select("session_window.start", "session_window.end", "key", "n", "m")
    )


def distinct(frames: Frames) -> DataFrame:
    return frames["events"].select("key", (F.col("value") % 10).alias("v")).dropDuplicates()


def distinct_with_watermark(frames: Frames) -> DataFrame:
    # Several rows of a key have the same minute, none the same second.
    by_minute = frames["events"].withColumn("time", F.date_trunc("minute", "time"))
    return late_after_10_minutes(by_minute).dropDuplicates(["key", "time"])


def distinct_within_watermark(frames: Frames) -> DataFrame:
    return late_after_10_minutes(frames["events"]).dropDuplicatesWithinWatermark(["key"])


def limited(frames: Frames) -> DataFrame:
    return frames["events"].select("key", "value").limit(BATCH_AND_A_HALF)


def joined(frames: Frames, how: str) -> DataFrame:
    """Both sides have a watermark and near times, so state is dropped and nulls are put out."""
    left = late_after_10_minutes(frames["events"]).alias("l")
    right = late_after_10_minutes(frames["others"].where("value > 0")).alias("r")
    near: Column = F.expr(
        "l.key = r.key and r.time between l.time - interval 5 minutes and "
        "l.time + interval 5 minutes"
    )
    columns = ["l.key", "l.value", "l.time"]
    if how != "leftsemi":
        columns += ["r.key", "r.value", "r.time"]
    return left.join(right, near, how).select(*columns)


def joined_without_watermark(frames: Frames) -> DataFrame:
    left = frames["events"].where("value > 300").alias("l")
    right = frames["others"].where("value > 500").alias("r")
    return left.join(right, F.expr("l.key = r.key")).select("l.key", "l.value", "r.value")


def distinct_then_windows(frames: Frames) -> DataFrame:
    return (
        distinct_with_watermark(frames)
        .groupBy(F.window("time", "10 minutes"))
        .count()
        .select("window.start", "count")
    )


def windows_of_windows(frames: Frames) -> DataFrame:
    per_key = (
        late_after_10_minutes(frames["events"])
        .groupBy(F.window("time", "5 minutes"), "key")
        .agg(F.sum("value").alias("s"))
    )
    return (
        per_key.groupBy(F.window("window", "15 minutes"))
        .agg(F.count("*").alias("keys"), F.max("s").alias("most"))
        .select("window.start", "keys", "most")
    )


def join_then_windows(frames: Frames) -> DataFrame:
    pairs = joined(frames, "leftouter").toDF("key", "value", "time", "k", "v", "t")
    return (
        pairs.groupBy(F.window("time", "10 minutes"))
        .agg(F.count("*").alias("n"), F.count("v").alias("matched"))
        .select("window.start", "n", "matched")
    )


def join_case(how: str, mode: str, *shows: str) -> Case:
    return Case(
        query=lambda frames: joined(frames, how),
        mode=mode,
        streams=BOTH,
        shows={what: JOINED[what] for what in shows},
        counts=(LATE, REMOVED),
    )


SQL_CASES = {
    "aggregation-update": Case(query=count_and_sum, mode="update"),
    "aggregation-complete": Case(query=count_and_sum, mode="complete"),
    "windows-append": Case(query=windows, mode="append", counts=(LATE, REMOVED)),
    "windows-update": Case(query=windows, mode="update", counts=(LATE, REMOVED)),
    "windows-complete": Case(query=windows, mode="complete"),
    # Spark refuses session windows in update mode.
    "sessions-append": Case(query=sessions, mode="append", counts=(LATE, REMOVED)),
    "sessions-complete": Case(query=sessions, mode="complete"),
    "dropDuplicates-append": Case(query=distinct, mode="append", counts=(DUPLICATES,)),
    "dropDuplicates-update": Case(query=distinct, mode="update", counts=(DUPLICATES,)),
    "dropDuplicates-watermark-append": Case(
        query=distinct_with_watermark, mode="append", counts=(DUPLICATES, LATE, REMOVED)
    ),
    "dropDuplicatesWithinWatermark-append": Case(
        query=distinct_within_watermark, mode="append", counts=(DUPLICATES, LATE, REMOVED)
    ),
    "dropDuplicatesWithinWatermark-update": Case(
        query=distinct_within_watermark, mode="update", counts=(DUPLICATES, LATE, REMOVED)
    ),
    # Spark refuses limits and outer joins in update mode; in complete mode a limit keeps no state.
    "limit-append": Case(query=limited, mode="append"),
    "join-inner-append": join_case("inner", "append", "pairs"),
    "join-inner-update": join_case("inner", "update", "pairs"),
    "join-left-append": join_case("leftouter", "append", "pairs", "left rows alone"),
    "join-right-append": join_case("rightouter", "append", "pairs", "right rows alone"),
    "join-full-append": join_case(
        "fullouter", "append", "pairs", "left rows alone", "right rows alone"
    ),
    "join-leftsemi-append": join_case("leftsemi", "append"),
    "join-leftsemi-update": join_case("leftsemi", "update"),
    "join-unbounded-append": Case(query=joined_without_watermark, mode="append", streams=BOTH),
    "dropDuplicates-then-windows-append": Case(
        query=distinct_then_windows, mode="append", counts=(DUPLICATES, LATE, REMOVED)
    ),
    "dropDuplicates-then-windows-update": Case(
        query=distinct_then_windows, mode="update", counts=(DUPLICATES, LATE, REMOVED)
    ),
    "windows-of-windows-append": Case(
        query=windows_of_windows, mode="append", counts=(LATE, REMOVED)
    ),
    "join-then-windows-append": Case(
        query=join_then_windows, mode="append", streams=BOTH, counts=(LATE, REMOVED)
    ),
}
