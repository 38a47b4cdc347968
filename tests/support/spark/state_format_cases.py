"""Queries with each form of state of a minor of Spark, also old forms."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

from support.spark.cases import CASES
from support.spark.minors import is_older_than
from support.spark.operator_cases import DATA_BATCHES_ONLY, Case, Frames, late_after_10_minutes
from support.spark.processors import FOR_EVER_MS, EventTimers, Processor, Values
from support.spark.queries import STATE

# Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SQL: Final = "spark.sql.streaming."

#: Formats of joins that a query begins with on this minor, on RocksDB.
JOIN_FORMATS = ("1", "2") if is_older_than("4.1") else ("1", "2", "3")
if not is_older_than("4.2"):
    JOIN_FORMATS = (*JOIN_FORMATS, "4")

#: Columns that a query groups by, some of which look like keys that Spark itself makes.
GROUPINGS: Mapping[str, Mapping[str, str]] = {
    "string": {"key": "key"},
    "two": {"key": "key", "n": "value % 3"},
    "struct": {"key": "struct(key, value % 3 AS n)"},
    "string-and-struct": {"key": "key", "more": "struct(value % 3 AS n)"},
    "struct-and-string": {"more": "struct(value % 3 AS n)", "key": "key"},
    "entry-of-a-map": {"key": "struct(key)", "userKey": "struct(value % 3 AS n)"},
    "entry-of-an-entry": {
        "key": "struct(struct(key) AS key, struct(value % 3 AS n) AS userKey)",
        "userKey": "struct(value % 2 AS m)",
    },
    "timer": {"key": "struct(key)", "expiryTimestampMs": "value % 3"},
    "lifetime": {"expirationMs": "value % 3", "elementKey": "struct(key)"},
}


class OfAnyKey(Processor):
    """Keys are shown with any columns."""

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Any]:
        return super().handleInputRows((str(tuple(key)),), rows, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Any]:
        return super().handleExpiredTimer((str(tuple(key)),), timerValues, expiredTimerInfo)


class Kinds(OfAnyKey):
    """A variable of each kind, with a lifetime and without one, and timers that never fire."""

    output = "key string, found string"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.ones = self._variables("ever", None)
        self.others = self._variables("long", FOR_EVER_MS)

    def _variables(self, name: str, ttl_ms: int | None) -> tuple[Any, Any, Any]:
        return (
            self.handle.getValueState(f"{name}Value", "n long", ttl_ms),
            self.handle.getListState(f"{name}List", "n long", ttl_ms),
            self.handle.getMapState(f"{name}Map", "k long", "n long", ttl_ms),
        )

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        found: list[object] = [len(list(self.handle.listTimers()))]
        self.handle.registerTimer(timers.getCurrentProcessingTimeInMs() + FOR_EVER_MS)
        for value, some, by_key in (self.ones, self.others):
            count = value.get()[0] if value.exists() else 0
            found += [
                count,
                [row[0] for row in some.get()] if some.exists() else [],
                sorted((k[0], n[0]) for k, n in by_key.iterator()) if by_key.exists() else [],
            ]
            value.update((count + len(values),))
            some.appendList([(n,) for n, _ in values])
            for n, _ in values:
                by_key.updateValue((n % 5,), (n,))
        yield key, str(found)


class Timers(OfAnyKey, EventTimers):
    """Timers that fire."""


class Nothing(OfAnyKey):
    """No state at all."""

    output = "key string, n long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        pass

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        yield key, len(values)


def grouped(processor: type[Processor], by: str, time: str) -> Case:
    columns = GROUPINGS[by]

    def query(frames: Frames) -> DataFrame:
        stream = late_after_10_minutes(frames["events"].where("key is not null"))
        named = stream.selectExpr(
            *[f"{text} AS {name}" for name, text in columns.items()],
            "value",
            "time",
            "unix_seconds(time) AS seconds",
        )
        of_key = named.groupBy(*[F.col(name) for name in columns])
        transform = (
            of_key.transformWithStateInPandas if is_older_than("4.1") else of_key.transformWithState
        )
        return transform(
            processor(pandas=is_older_than("4.1")),
            outputStructType=processor.output,
            outputMode="Update",
            timeMode=time,
        )

    more = DATA_BATCHES_ONLY if time == "ProcessingTime" else {}
    return Case(query=query, mode="update", settings=more)


def formatted(name: str, key: str, value: str) -> Case:
    case = CASES[name]
    return replace(case, settings={**case.settings, key: value})


FORMAT_CASES: Mapping[str, Case] = (
    {
        f"aggregation-{one}": formatted(
            "windows-append", f"{SQL}aggregation.stateFormatVersion", one
        )
        for one in ("1", "2")
    }
    | {
        f"groups-{one}": formatted(of, f"{SQL}flatMapGroupsWithState.stateFormatVersion", one)
        # Spark refuses its own rows of the older format, if there are times in them.
        for one, of in {
            "1": "flatMapGroupsWithState-append",
            "2": "flatMapGroupsWithState-event-time-append",
        }.items()
    }
    | {
        f"join-{one}": formatted(
            # Spark refuses outer joins with the oldest format.
            "join-inner-append" if one == "1" else "join-full-append",
            f"{SQL}join.stateFormatVersion",
            one,
        )
        for one in JOIN_FORMATS
    }
    | {
        f"{name}-{one}": formatted(of, f"{STATE}encodingFormat", one)
        for one in ("unsaferow", "avro")
        for name, of in {
            "lists": "transformWithStateInPandas-list-append",
            "maps": "transformWithStateInPandas-map-update",
            "timers": "transformWithStateInPandas-event-timers-append",
        }.items()
    }
    | {"no-state": grouped(Nothing, "string", "None")}
    | {f"kinds-by-{by}": grouped(Kinds, by, "ProcessingTime") for by in GROUPINGS}
    | {f"timers-by-{by}": grouped(Timers, by, "EventTime") for by in GROUPINGS}
)
