"""Every operator gives the rows that Spark's own providers give, batch by batch and after a
restart in the middle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from support import canonical, run_in_two_parts, source, write_batch

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BATCHES = 6


def events(stream: int = 0, *, batches: int = BATCHES) -> list[list[dict[str, Any]]]:
    """Deterministic events: keys repeat within and across batches, time moves on, some are late."""
    result = []
    for batch in range(batches):
        rows = []
        for i in range(120):
            n = batch * 120 + i
            late = 900 if n % 17 == 0 else 0
            seconds = batch * 600 + (i * 37) % 600 - late
            rows.append(
                {
                    "key": f"k{(n * 7 + stream) % 41}" if n % 29 else None,
                    "value": (n * 31) % 1000 - 300,
                    "time": START + dt.timedelta(seconds=seconds),
                }
            )
        result.append(rows)
    return result


def count_and_sum(frames: dict[str, DataFrame]) -> DataFrame:
    return frames["events"].groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("s"))


def windows(frames: dict[str, DataFrame]) -> DataFrame:
    return (
        frames["events"]
        .withWatermark("time", "10 minutes")
        .groupBy(F.window("time", "5 minutes"), "key")
        .agg(F.count("*").alias("n"), F.max("value").alias("m"))
        .select("window.start", "window.end", "key", "n", "m")
    )


def session_windows(frames: dict[str, DataFrame]) -> DataFrame:
    return (
        frames["events"]
        .withWatermark("time", "10 minutes")
        .groupBy(F.session_window("time", "90 seconds"), "key")
        .agg(F.count("*").alias("n"), F.sum("value").alias("s"))
        .select("session_window.start", "session_window.end", "key", "n", "s")
    )


def distinct_keys(frames: dict[str, DataFrame]) -> DataFrame:
    return frames["events"].select("key", (F.col("value") % 10).alias("v")).dropDuplicates()


def distinct_with_watermark(frames: dict[str, DataFrame]) -> DataFrame:
    return frames["events"].withWatermark("time", "10 minutes").dropDuplicates(["key", "time"])


def distinct_within_watermark(frames: dict[str, DataFrame]) -> DataFrame:
    return (
        frames["events"].withWatermark("time", "10 minutes").dropDuplicatesWithinWatermark(["key"])
    )


def near_join(frames: dict[str, DataFrame], how: str) -> DataFrame:
    left = frames["events"].withWatermark("time", "10 minutes").alias("l")
    right = frames["others"].where("value > 0").withWatermark("time", "10 minutes").alias("r")
    near = F.expr(
        "l.key = r.key and r.time between l.time - interval 5 minutes and "
        "l.time + interval 5 minutes"
    )
    return left.join(right, near, how).select("l.key", "l.value", "r.value", "l.time", "r.time")


def inner_join(frames: dict[str, DataFrame]) -> DataFrame:
    return near_join(frames, "inner")


def left_outer_join(frames: dict[str, DataFrame]) -> DataFrame:
    return near_join(frames, "left")


def pandas_with_state(frames: dict[str, DataFrame]) -> DataFrame:
    # Inside, so that it travels to the Python workers by value: they cannot import this file.
    def running_total(
        key: tuple[str], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        total = state.get[0] if state.exists else 0
        total += sum(int(batch["value"].sum()) for batch in batches)
        if total < 0:
            # Starts again later: exercises removal.
            state.remove()
        else:
            state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "total": [total]})

    return (
        frames["events"]
        .where("key is not null")
        .groupBy("key")
        .applyInPandasWithState(
            running_total,
            outputStructType="key string, total long",
            stateStructType="total long",
            outputMode="update",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )


def inner_join_without_watermark(frames: dict[str, DataFrame]) -> DataFrame:
    left = frames["events"].where("value > 300").alias("l")
    right = frames["others"].where("value > 500").alias("r")
    return left.join(right, F.expr("l.key = r.key")).select("l.key", "l.value", "r.value")


def two_operators(frames: dict[str, DataFrame]) -> DataFrame:
    return (
        frames["events"]
        .withWatermark("time", "10 minutes")
        .dropDuplicates(["key", "time"])
        .groupBy(F.window("time", "10 minutes"))
        .count()
        .select("window.start", "count")
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    query: Callable[[dict[str, DataFrame]], DataFrame]
    mode: str
    streams: tuple[str, ...] = ("events",)


CASES = {
    "aggregation-update": Case(query=count_and_sum, mode="update"),
    "aggregation-complete": Case(query=count_and_sum, mode="complete"),
    "windows-update": Case(query=windows, mode="update"),
    "windows-append": Case(query=windows, mode="append"),
    "windows-complete": Case(query=windows, mode="complete"),
    "session-windows-append": Case(query=session_windows, mode="append"),
    "session-windows-complete": Case(query=session_windows, mode="complete"),
    "dropDuplicates": Case(query=distinct_keys, mode="append"),
    "dropDuplicates-watermark": Case(query=distinct_with_watermark, mode="append"),
    "dropDuplicatesWithinWatermark": Case(query=distinct_within_watermark, mode="append"),
    "inner-join": Case(query=inner_join, mode="append", streams=("events", "others")),
    "left-outer-join": Case(query=left_outer_join, mode="append", streams=("events", "others")),
    "applyInPandasWithState": Case(query=pandas_with_state, mode="update"),
    "inner-join-unbounded": Case(
        query=inner_join_without_watermark, mode="append", streams=("events", "others")
    ),
    "two-operators": Case(query=two_operators, mode="append"),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_equal_sparks_own_provider_in_every_batch(
    name: str, spark: SparkSession, provider: Callable[[str], None], tmp_path: Path
) -> None:
    case = CASES[name]
    inputs = {stream: events(n) for n, stream in enumerate(case.streams)}
    runs = {}
    for which in ("hdfs", "holdfast"):
        provider(which)
        runs[which] = run_in_two_parts(
            spark, inputs=inputs, query=case.query, mode=case.mode, folder=tmp_path / which
        )
    assert len(runs["hdfs"].batches) >= BATCHES
    assert sum(len(rows) for rows in runs["hdfs"].batches.values()) > 0
    assert runs["holdfast"].batches == runs["hdfs"].batches


def test_a_sink_that_runs_the_batch_twice_sees_the_same_rows_and_loads_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    for number, rows in enumerate(events()):
        write_batch(folder, number, rows)
    runs: list[tuple[int, int]] = []

    def twice(batch: DataFrame, batch_id: int) -> None:
        first, second = (canonical(batch.collect()) for _ in range(2))
        assert first == second
        runs.append((batch_id, sum(row[1] for row in first)))

    query = (
        count_and_sum({"events": source(spark, folder)})
        .writeStream.outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(twice)
        .start()
    )
    query.awaitTermination()
    assert runs == [(batch, (batch + 1) * 120) for batch in range(BATCHES)]
    metrics = [p["stateOperators"][0]["customMetrics"] for p in query.recentProgress]
    # The second run goes back by undoing the first; the next batch builds on the first run's ids.
    assert all(m["holdfastRewinds"] > 0 for m in metrics)
    assert [m["holdfastLoads"] for m in metrics[1:]] == [0] * (BATCHES - 1)
