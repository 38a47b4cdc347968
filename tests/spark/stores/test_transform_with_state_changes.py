"""``transformWithState`` whose restarted query brings another processor than before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

from support.spark.operator_cases import Frames
from support.spark.operator_inputs import events
from support.spark.processors import Processor, Totals, Values
from support.spark.queries import STATE, Batches, run, settings
from support.spark.transform_with_state_cases import transformed

# Python workers cannot import this module: its classes travel to them by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Narrow(Processor):
    """State of one field in each kind of variable."""

    output = "key string, n long, values string, slots string"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n int")
        self.values = handle.getListState("values", "value int")
        self.slots = handle.getMapState("slots", "slot int", "value int")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        n = (self.n.get()[0] if self.n.exists() else 0) + len(values)
        self.n.update((n,))
        self.values.appendValue((values[0][0],))
        self.slots.updateValue((n % 4,), (values[0][0],))
        yield self._shown(key)

    def _shown(self, key: str) -> tuple[Any, ...]:
        slots = sorted((slot[0], tuple(value)) for slot, value in self.slots.iterator())
        return key, self.n.get()[0], str([tuple(v) for v in self.values.get()]), str(slots)


class Wide(Narrow):
    """The same variables with wider numbers and one more field; what is old has null there."""

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long, text string")
        self.values = handle.getListState("values", "value long, text string")
        self.slots = handle.getMapState("slots", "slot int", "value long, text string")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        n, text = self.n.get() if self.n.exists() else (0, "new")
        yield self._shown(f"{key} before: {text}") if text != "new" else (key, 0, "", "")
        self.n.update((n + len(values) + (1 << 40), f"text of {key}"))
        self.values.appendValue((values[0][0], "é"))
        self.slots.updateValue((n % 3,), (values[0][0], None))
        yield self._shown(key)


class WithoutTotal(Processor):
    """`Totals` after its variable was dropped and another one added."""

    output = Totals.output

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        handle.deleteIfExists("total")
        self.count = handle.getValueState("count", "n long")

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        seen = self.count.exists()
        n = (self.count.get()[0] if seen else 0) + len(values)
        self.count.update((n,))
        yield key, n, seen


def rows_with_change(
    spark: SparkSession, processors: list[type[Processor]], *, pandas: bool, folder: Path
) -> Batches:
    """Each processor takes over where the one before stopped."""
    turns = iter(processors)

    def query(frames: Frames) -> DataFrame:
        return transformed(frames["events"], next(turns), pandas=pandas, mode="update")

    return run(
        spark,
        inputs={"events": events()},
        query=query,
        mode="update",
        folder=folder,
        parts=len(processors),
    )


@pytest.mark.full
@pytest.mark.parametrize("pandas", [True, False], ids=["pandas", "rows"])
def test_state_of_an_older_schema_is_read_with_the_new_one(
    pandas: bool, spark: SparkSession, provider: Callable[[str], None], tmp_path: Path
) -> None:
    rows = {}
    for which in ("rocksdb", "holdfast"):
        provider(which)
        with settings(spark, {STATE + "encodingFormat": "avro"}):
            rows[which] = rows_with_change(
                spark, [Narrow, Wide], pandas=pandas, folder=tmp_path / which
            )
    shown = str(rows["rocksdb"])
    assert "before: None" in shown, "state that Narrow wrote was read by Wide"
    assert rows["holdfast"] == rows["rocksdb"]


@pytest.mark.full
def test_a_variable_that_was_dropped_is_gone_and_a_new_one_starts_empty(
    spark: SparkSession, provider: Callable[[str], None], tmp_path: Path
) -> None:
    rows = {}
    for which in ("rocksdb", "holdfast"):
        provider(which)
        rows[which] = rows_with_change(
            spark, [Totals, WithoutTotal, Totals], pandas=False, folder=tmp_path / which
        )
    found = [any(seen for _, _, seen in batch) for batch in rows["rocksdb"].values()]
    assert found == [False, True] * 3, "each processor begins without state"
    assert rows["holdfast"] == rows["rocksdb"]
