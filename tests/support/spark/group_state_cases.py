"""``applyInPandasWithState``, ``flatMapGroupsWithState``, ``mapGroupsWithState`` for the operator
matrix: without and with the two kinds of timeout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from support.spark.java_side import instance
from support.spark.operator_cases import (
    DATA_BATCHES_ONLY,
    LATE,
    REMOVED,
    Case,
    Frames,
    late_after_10_minutes,
)

# Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Batches = Iterator[pd.DataFrame]
Update = Callable[[tuple[str], Batches, GroupState], Batches]


def row(key: str, total: int, what: str) -> pd.DataFrame:
    return pd.DataFrame({"key": [key], "total": [total], "what": [what]})


def add(state: GroupState, batches: Batches) -> int:
    total: int = state.get[0] if state.exists else 0
    return total + sum(int(batch["value"].sum()) for batch in batches)


def total_until_negative(key: tuple[str], batches: Batches, state: GroupState) -> Batches:
    total = add(state, batches)
    if total < 0:
        # Starts again later: exercises removal.
        state.remove()
    else:
        state.update((total,))
    yield row(key[0], total, "rows")


def total_until_quiet(key: tuple[str], batches: Batches, state: GroupState) -> Batches:
    if state.hasTimedOut:
        yield row(key[0], state.get[0], "timeout")
        state.remove()
        return
    total = add(state, batches)
    state.update((total,))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 240_000)
    yield row(key[0], total, "rows")


def total_until_next_batch(key: tuple[str], batches: Batches, state: GroupState) -> Batches:
    if state.hasTimedOut:
        yield row(key[0], state.get[0], "timeout")
        state.remove()
        return
    total = add(state, batches)
    state.update((total,))
    # Batches start further apart than this: each one times out keys without rows.
    state.setTimeoutDuration(1)
    yield row(key[0], total, "rows")


def grouped(frame: DataFrame, function: Update, mode: str, timeout: str) -> DataFrame:
    return (
        frame.where("key is not null")
        .groupBy("key")
        .applyInPandasWithState(
            function,
            outputStructType="key string, total long, what string",
            stateStructType="total long",
            outputMode=mode,
            timeoutConf=timeout,
        )
    )


def without_timeout(mode: str) -> Callable[[Frames], DataFrame]:
    return lambda frames: grouped(
        frames["events"], total_until_negative, mode, GroupStateTimeout.NoTimeout
    )


def some_keys(frames: Frames) -> DataFrame:
    """A third of the keys per batch, so that the others have no rows for long enough."""
    return frames["events"].where("pmod(hash(key), 3) = pmod(floor(unix_seconds(time) / 600), 3)")


def event_time_timeout(frames: Frames) -> DataFrame:
    return grouped(
        late_after_10_minutes(some_keys(frames)),
        total_until_quiet,
        "update",
        GroupStateTimeout.EventTimeTimeout,
    )


def processing_time_timeout(frames: Frames) -> DataFrame:
    return grouped(
        some_keys(frames),
        total_until_next_batch,
        "update",
        GroupStateTimeout.ProcessingTimeTimeout,
    )


def on_the_jvm(frame: DataFrame, method: str, *arguments: str) -> DataFrame:
    """A query of GroupStateJob.java: Python has no way to write it."""
    spark = frame.sparkSession
    build = getattr(instance(spark, "GroupStateJob"), method)
    return DataFrame(build(frame.where("key is not null")._jdf, *arguments), spark)


def flat_map(mode: str) -> Callable[[Frames], DataFrame]:
    return lambda frames: on_the_jvm(frames["events"], "flatMap", mode, "NoTimeout")


def flat_map_event_time(mode: str) -> Callable[[Frames], DataFrame]:
    return lambda frames: on_the_jvm(
        late_after_10_minutes(some_keys(frames)), "flatMap", mode, "EventTimeTimeout"
    )


def flat_map_processing_time(frames: Frames) -> DataFrame:
    return on_the_jvm(some_keys(frames), "flatMap", "update", "ProcessingTimeTimeout")


def map_event_time(frames: Frames) -> DataFrame:
    return on_the_jvm(late_after_10_minutes(some_keys(frames)), "map", "EventTimeTimeout")


TIMEOUTS = {
    "rows": lambda row: row[2].startswith("rows"),
    "timeouts": lambda row: row[2].startswith("timeout"),
}

GROUP_STATE_CASES = {
    "applyInPandasWithState-update": Case(
        query=without_timeout("update"), mode="update", counts=(REMOVED,)
    ),
    "applyInPandasWithState-append": Case(
        query=without_timeout("append"), mode="append", counts=(REMOVED,)
    ),
    "applyInPandasWithState-event-time-update": Case(
        query=event_time_timeout, mode="update", shows=TIMEOUTS, counts=(LATE, REMOVED)
    ),
    "applyInPandasWithState-processing-time-update": Case(
        query=processing_time_timeout,
        mode="update",
        settings=DATA_BATCHES_ONLY,
        shows=TIMEOUTS,
        counts=(REMOVED,),
    ),
    "flatMapGroupsWithState-update": Case(
        query=flat_map("update"), mode="update", counts=(REMOVED,)
    ),
    "flatMapGroupsWithState-append": Case(
        query=flat_map("append"), mode="append", counts=(REMOVED,)
    ),
    "flatMapGroupsWithState-event-time-update": Case(
        query=flat_map_event_time("update"), mode="update", shows=TIMEOUTS, counts=(LATE, REMOVED)
    ),
    "flatMapGroupsWithState-event-time-append": Case(
        query=flat_map_event_time("append"), mode="append", shows=TIMEOUTS, counts=(LATE, REMOVED)
    ),
    "flatMapGroupsWithState-processing-time-update": Case(
        query=flat_map_processing_time,
        mode="update",
        settings=DATA_BATCHES_ONLY,
        shows=TIMEOUTS,
        counts=(REMOVED,),
    ),
    # Spark has it only in update mode.
    "mapGroupsWithState-event-time-update": Case(
        query=map_event_time, mode="update", shows=TIMEOUTS, counts=(LATE, REMOVED)
    ),
}
