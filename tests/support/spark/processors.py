"""Stateful processors of the ``transformWithState`` tests.

Each is written once, on tuples, and runs in both Python APIs: `Processor` translates.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

# Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Batches start further apart than this, so its bound is over by the next batch.
UNTIL_NEXT_BATCH_MS = 1
FOR_EVER_MS = 365 * 24 * 3600 * 1000

Values = list[tuple[int, int]]


class Processor(StatefulProcessor):
    """Rows of one key as sorted ``(value, seconds)``, output rows as tuples of `output`."""

    output: ClassVar[str]

    def __init__(self, *, pandas: bool) -> None:
        self.pandas = pandas

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        raise NotImplementedError

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError

    def on_timer(self, key: str, expiry_ms: int) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.on_start(handle)

    # Spark passes these by the names it documents.
    def handleInputRows(  # noqa: N802
        self,
        key: tuple[str],
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Any]:
        return self._packed(self.on_rows(key[0], self._values(rows), timerValues))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[str],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Any]:
        return self._packed(self.on_timer(key[0], expiredTimerInfo.getExpiryTimeInMs()))

    def close(self) -> None:
        pass

    def _values(self, rows: Iterator[Any]) -> Values:
        if self.pandas:
            return sorted(
                (int(value), int(seconds))
                for frame in rows
                for value, seconds in zip(frame["value"], frame["seconds"], strict=True)
            )
        return sorted((row["value"], row["seconds"]) for row in rows)

    def _packed(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        names = [column.split()[0] for column in self.output.split(", ")]
        if self.pandas:
            for row in rows:
                yield pd.DataFrame([row], columns=names)
        else:
            named = Row(*names)
            for row in rows:
                yield named(*row)


class Totals(Processor):
    """Value state: get, exists, update, clear."""

    output = "key string, total long, seen boolean"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long, text string")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        seen = self.total.exists()
        total = self.total.get()[0] if seen else 0
        total += sum(value for value, _ in values)
        if total < 0:
            self.total.clear()
        else:
            self.total.update((total, None if total % 3 else "é" * (total % 50)))
        yield key, total, seen


class History(Processor):
    """List state: put, append one, append several, get, clear."""

    output = "key string, length long, sum long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.values = handle.getListState("values", "value long, seconds long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        self.values.appendValue(values[0])
        if len(values) > 1:
            self.values.appendList(values[1:])
        everything = [tuple(row) for row in self.values.get()]
        if len(everything) > 6:
            self.values.clear()
        elif len(everything) > 4:
            self.values.put(everything[-4:])
        # In list order: the order of a list is part of the state.
        ordered = sum(place * value for place, (value, _) in enumerate(everything))
        yield key, len(everything), ordered


class Shelf(Processor):
    """Map state: update, contains, get, iterate, remove, clear."""

    output = "key string, entries long, sum long, had boolean"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.shelf = handle.getMapState("shelf", "slot string", "value long, n int")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        had = self.shelf.exists()
        for value, _ in values:
            slot = (f"slot-{value % 7}" * (1 + value % 3),)
            n = self.shelf.getValue(slot)[1] if self.shelf.containsKey(slot) else 0
            self.shelf.updateValue(slot, (value, n + 1))
        entries = {slot[0]: tuple(content) for slot, content in self.shelf.iterator()}
        keys, values_of_keys = self.shelf.keys(), self.shelf.values()
        assert sorted(entries) == sorted(slot[0] for slot in keys)
        assert sorted(entries.values()) == sorted(tuple(content) for content in values_of_keys)
        if len(entries) > 5:
            self.shelf.clear()
        elif values[0][0] % 5 == 0:
            self.shelf.removeKey((min(entries),))
        yield key, len(entries), sum(v * n for v, n in entries.values()), had


class EventTimers(Processor):
    """Event-time timers: register, list, delete, expire; state is removed when its timer fires."""

    output = "key string, what string, seconds long, total long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        total = (self.total.get()[0] if self.total.exists() else 0) + len(values)
        self.total.update((total,))
        pending = sorted(self.handle.listTimers())
        if len(pending) > 2:
            self.handle.deleteTimer(pending[-1])
        latest = max(seconds for _, seconds in values)
        self.handle.registerTimer((latest + 240 + total % 5 * 60) * 1000)
        yield key, "rows", timers.getCurrentWatermarkInMs() // 1000, total * 100 + len(pending)

    def on_timer(self, key: str, expiry_ms: int) -> Iterator[tuple[Any, ...]]:
        total = self.total.get()[0] if self.total.exists() else -1
        if total % 2:
            self.total.clear()
        yield key, "timer", expiry_ms // 1000, total


class ProcessingTimers(Processor):
    """Processing-time timers that fire in the next batch, or are deleted there, or never fire."""

    output = "key string, what string, total long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        total = (self.total.get()[0] if self.total.exists() else 0) + len(values)
        self.total.update((total,))
        pending = sorted(self.handle.listTimers())
        now = timers.getCurrentProcessingTimeInMs()
        if total % 3 == 0:
            for timer in pending:
                self.handle.deleteTimer(timer)
        if not pending:
            self.handle.registerTimer(now + FOR_EVER_MS)
        self.handle.registerTimer(now + UNTIL_NEXT_BATCH_MS)
        yield key, f"rows, {len(pending)} timers", total

    def on_timer(self, key: str, expiry_ms: int) -> Iterator[tuple[Any, ...]]:
        yield key, "timer", self.total.get()[0]


class Lifetimes(Processor):
    """Value, list and map state whose lifetime ends before the next batch, or never."""

    output = "key string, values string, lists string, maps string"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.short = self._variables("short", UNTIL_NEXT_BATCH_MS)
        self.long = self._variables("long", FOR_EVER_MS)

    def _variables(self, name: str, ttl_ms: int) -> tuple[Any, Any, Any]:
        return (
            self.handle.getValueState(f"{name}Value", "n long", ttl_ms),
            self.handle.getListState(f"{name}List", "n long", ttl_ms),
            self.handle.getMapState(f"{name}Map", "k long", "n long", ttl_ms),
        )

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        found: list[str] = []
        for kind in range(3):
            states = [self.short[kind], self.long[kind]]
            found.append(" ".join(str(self._content(kind, state)) for state in states))
        for value, list_, map_ in (self.short, self.long):
            value.update((values[0][0],))
            list_.appendList([(n,) for n, _ in values])
            for n, _ in values:
                map_.updateValue((n % 5,), (n,))
        yield (key, *found)

    def _content(self, kind: int, state: Any) -> Any:
        if not state.exists():
            return "none"
        if kind == 0:
            return state.get()[0]
        if kind == 1:
            return [row[0] for row in state.get()]
        return sorted((k[0], v[0]) for k, v in state.iterator())


class Balances(Processor):
    """Value and list state that start from an initial state."""

    output = "key string, balance long, moves long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.balance = handle.getValueState("balance", "balance long")
        self.moves = handle.getListState("moves", "value long")

    def handleInitialState(  # noqa: N802
        self,
        key: tuple[str],
        initialState: Any,  # noqa: N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        balance = initialState["balance"]
        if self.pandas:
            balance = int(balance.iloc[0])
        self.balance.update((balance,))
        self.moves.appendValue((balance,))

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        balance = self.balance.get()[0] if self.balance.exists() else 0
        balance += sum(value for value, _ in values)
        self.balance.update((balance,))
        self.moves.appendList([(value,) for value, _ in values])
        yield key, balance, sum(1 for _ in self.moves.get())


class Stamped(Processor):
    """Output rows carry an event time, for later operators."""

    output = "key string, n long, time timestamp"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        n = (self.n.get()[0] if self.n.exists() else 0) + len(values)
        self.n.update((n,))
        for seconds in self._times(values):
            yield key, n, dt.datetime.fromtimestamp(seconds, dt.UTC)

    @staticmethod
    def _times(values: Values) -> Sequence[int]:
        return sorted({seconds for _, seconds in values})


class Everything(Processor):
    """A value, a list that grows, one that is set again, a map and a timer for each key."""

    output = "key string, n long"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long")
        self.values = handle.getListState("values", "value long")
        self.latest = handle.getListState("latest", "value long")
        self.slots = handle.getMapState("slots", "slot long", "value long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        n = (self.n.get()[0] if self.n.exists() else 0) + len(values)
        self.n.update((n,))
        # Lists of several lengths that begin with the values of earlier ones.
        if n % 5 == 0:
            self.latest.clear()
            self.latest.appendValue((0,))
        else:
            self.latest.put([(0,), (1,), (n,)][: 1 + n % 3])
        for value, _ in values:
            self.values.appendValue((value,))
            self.slots.updateValue((value % 4,), (value,))
        self.handle.registerTimer((values[-1][1] + 1200) * 1000)
        yield key, n

    def on_timer(self, key: str, expiry_ms: int) -> Iterator[tuple[Any, ...]]:
        self.n.clear()
        self.latest.clear()
        self.slots.clear()
        yield key, -1
