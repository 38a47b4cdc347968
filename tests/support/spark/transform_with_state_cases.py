"""``transformWithState`` and ``transformWithStateInPandas`` for the operator matrix."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from support.spark.java_side import instance
from support.spark.operator_cases import (
    DATA_BATCHES_ONLY,
    LATE,
    REMOVED,
    Case,
    Frames,
    Row,
    late_after_10_minutes,
)
from support.spark.processors import (
    Balances,
    EventTimers,
    History,
    Lifetimes,
    ProcessingTimers,
    Processor,
    Shelf,
    Stamped,
    Totals,
)


def transformed(
    frame: DataFrame,
    processor: type[Processor],
    *,
    pandas: bool,
    mode: str,
    time: str = "None",
    initial: DataFrame | None = None,
    event_time: str = "",
) -> DataFrame:
    grouped = (
        frame.where("key is not null").withColumn("seconds", F.unix_seconds("time")).groupBy("key")
    )
    transform = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
    return transform(
        processor(pandas=pandas),
        outputStructType=processor.output,
        outputMode=mode.title(),
        timeMode=time,
        initialState=None if initial is None else initial.groupBy("key"),
        eventTimeColumnName=event_time,
    )


# The rows of each processor, see processors.py.
SHOWS: dict[type[Processor], dict[str, Callable[[Row], bool]]] = {
    Totals: {
        "state was there": lambda row: row[2],
        "state was not there": lambda row: not row[2],
        "state was cleared": lambda row: row[1] < 0,
    },
    History: {
        "lists were set anew": lambda row: 4 < row[1] <= 6,
        "lists were cleared": lambda row: row[1] > 6,
    },
    Shelf: {
        "maps were there": lambda row: row[3],
        "maps were cleared": lambda row: row[1] > 5,
    },
    EventTimers: {
        "rows": lambda row: row[1] == "rows",
        "timers": lambda row: row[1] == "timer",
        "several timers of a key": lambda row: row[1] == "rows" and row[3] % 100 > 1,
        "a timer without state": lambda row: row[1] == "timer" and row[3] < 0,
    },
    ProcessingTimers: {
        "timers": lambda row: row[1] == "timer",
        "timers that never fire": lambda row: row[1] == "rows, 1 timers",
    },
    # "short long" for each kind of state.
    Lifetimes: {
        f"{kind} that ended beside those that did not": (
            lambda row, n=n: row[n].startswith("none ") and row[n] != "none none"
        )
        for n, kind in enumerate(["values", "lists", "maps"], start=1)
    },
    Balances: {"initial state": lambda row: row[1] > 2000},
}


def plain(processor: type[Processor], *, pandas: bool, mode: str = "update") -> Case:
    return Case(
        query=lambda frames: transformed(frames["events"], processor, pandas=pandas, mode=mode),
        mode=mode,
        shows=SHOWS[processor],
    )


def event_timers(*, pandas: bool, mode: str) -> Case:
    def query(frames: Frames) -> DataFrame:
        stream = late_after_10_minutes(frames["events"])
        return transformed(stream, EventTimers, pandas=pandas, mode=mode, time="EventTime")

    return Case(query=query, mode=mode, shows=SHOWS[EventTimers], counts=(LATE,))


def by_the_clock(processor: type[Processor], *, pandas: bool) -> Case:
    def query(frames: Frames) -> DataFrame:
        # A third of the keys per batch, so that some timers fire for keys without rows.
        some = frames["events"].where(
            "pmod(hash(key), 3) <> pmod(floor(unix_seconds(time) / 600), 3)"
        )
        return transformed(some, processor, pandas=pandas, mode="update", time="ProcessingTime")

    # A timer fires in the first batch that begins after it. Without batches that have no data, that
    # batch does not depend on the clock.
    return Case(query=query, mode="update", settings=DATA_BATCHES_ONLY, shows=SHOWS[processor])


def initial_state(*, pandas: bool) -> Case:
    def query(frames: Frames) -> DataFrame:
        stream = frames["events"]
        accounts = [(f"k{n}", n * 1000) for n in range(0, 60, 2)]
        initial = stream.sparkSession.createDataFrame(accounts, "key string, balance long")
        return transformed(stream, Balances, pandas=pandas, mode="update", initial=initial)

    return Case(query=query, mode="update", shows=SHOWS[Balances])


def then_windows(frames: Frames) -> DataFrame:
    stamped = transformed(
        late_after_10_minutes(frames["events"]),
        Stamped,
        pandas=True,
        mode="append",
        time="EventTime",
        event_time="time",
    )
    return (
        stamped.groupBy(F.window("time", "10 minutes"))
        .agg(F.count("*").alias("rows"), F.max("n").alias("most"))
        .select("window.start", "rows", "most")
    )


def on_the_jvm(frames: Frames) -> DataFrame:
    """CountingJob.java: Python has no way to write it."""
    events = frames["events"].where("key is not null")
    return DataFrame(
        instance(events.sparkSession, "CountingJob").apply(events._jdf), events.sparkSession
    )


TRANSFORM_WITH_STATE_CASES = {
    "transformWithStateOnJvm-update": Case(
        query=on_the_jvm,
        mode="update",
        shows={"lists that grew over batches": lambda row: row[1] > 6},
    ),
    "transformWithStateInPandas-value-update": plain(Totals, pandas=True),
    "transformWithState-value-append": plain(Totals, pandas=False, mode="append"),
    "transformWithStateInPandas-list-append": plain(History, pandas=True, mode="append"),
    "transformWithState-list-update": plain(History, pandas=False),
    "transformWithStateInPandas-map-update": plain(Shelf, pandas=True),
    "transformWithState-map-append": plain(Shelf, pandas=False, mode="append"),
    "transformWithStateInPandas-event-timers-append": event_timers(pandas=True, mode="append"),
    "transformWithState-event-timers-update": event_timers(pandas=False, mode="update"),
    "transformWithStateInPandas-processing-timers-update": by_the_clock(
        ProcessingTimers, pandas=True
    ),
    "transformWithState-processing-timers-update": by_the_clock(ProcessingTimers, pandas=False),
    "transformWithStateInPandas-ttl-update": by_the_clock(Lifetimes, pandas=True),
    "transformWithState-ttl-update": by_the_clock(Lifetimes, pandas=False),
    "transformWithStateInPandas-initial-state-update": initial_state(pandas=True),
    "transformWithState-initial-state-update": initial_state(pandas=False),
    "transformWithStateInPandas-then-windows-append": Case(
        query=then_windows, mode="append", counts=(LATE, REMOVED)
    ),
}
