"""`holdfast.open_state` reads state of `transformWithState` in Avro as Spark's reader does."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

import holdfast
from holdfast._core import CorruptSegmentError
from support.spark.minors import is_older_than
from support.spark.operator_cases import Frames
from support.spark.operator_inputs import events
from support.spark.processors import Processor, Values
from support.spark.queries import CHECKSUMS, STATE, run, settings
from support.spark.state_format_cases import FORMAT_CASES
from support.spark.state_rows import of_spark, sorted_rows
from support.spark.transform_with_state_cases import transformed

# Python workers cannot import this module: its classes travel to them by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

AVRO = {STATE + "encodingFormat": "avro", **({} if is_older_than("4.2") else CHECKSUMS)}
COMMON = (
    "flag boolean, wide double, bytes binary, price decimal(10,2), large decimal(38,6), "
    "day date, at timestamp, local timestamp_ntz"
)


class Old(Processor):
    """A variable of each kind, with every type that Avro has."""

    output = "key string"
    fields = f"n int, ratio float, {COMMON}, inner struct<a:int>, names map<string,int>"
    elements = "n int, tags array<string>, parts array<struct<a:int>>"

    def on_start(self, handle: StatefulProcessorHandle) -> None:
        self.one = handle.getValueState("one", self.fields)
        self.several = handle.getListState("several", self.elements)
        self.by_key = handle.getMapState("byKey", "day date, slot int", self.elements)

    def on_rows(self, key: str, values: Values, timers: TimerValues) -> Iterator[tuple[Any, ...]]:
        n, seconds = values[0]
        at = dt.datetime(1969, 12, 31, 23, 59, 59, 123456) + dt.timedelta(seconds=n * 90_000)
        common = (n > 0, -n / 7, bytes([n % 256, 0]), Decimal(n) / 100, Decimal(n) * 10**20)
        whole = (n, n / 3, *common, at.date(), at, at, *self.nested(n))
        self.one.update(tuple(None for _ in whole) if n % 5 == 0 else whole)
        self.several.appendValue(self.element(n))
        self.by_key.updateValue((at.date(), n % 3), self.element(seconds))
        yield (key,)

    def nested(self, n: int) -> tuple[Any, ...]:
        return ((n,), {"a": n, "b": n + 1})

    def element(self, n: int) -> tuple[Any, ...]:
        return (n, None if n % 4 == 0 else [f"é{n}"], [(n,), (None,)][: n % 3])


class New(Old):
    """The same variables with wider numbers and more fields, also within structs."""

    fields = (
        f"n long, ratio double, {COMMON}, inner struct<a:double,b:string>, "
        "names map<string,long>, more string"
    )
    elements = "n long, tags array<string>, parts array<struct<a:long,b:decimal(9,3)>>, more int"

    def nested(self, n: int) -> tuple[Any, ...]:
        return ((float(n), "b"), {"c": 1 << 40}, f"more of {n}")

    def element(self, n: int) -> tuple[Any, ...]:
        return (n + (1 << 40), ["new"], [(n, Decimal("1.125"))], n)


def compare(spark: SparkSession, path: Path, store: str, batch: int) -> pa.Table:
    expected = of_spark(spark, path, 0, batch, store).toArrow()
    with holdfast.open_state(path, store=store, batch=batch) as state:
        table = state.to_arrow()
        assert table.schema == state.schema
        assert pa.RecordBatchReader.from_stream(state).read_all().equals(table)
        assert 0 < len(state) <= len(table)
        for operation in (
            lambda: state.get(table.select(state.key_names)),
            lambda: state.diff(state),
        ):
            with pytest.raises(NotImplementedError, match=r"cannot be (looked up|compared)"):
                operation()
    shown = table.drop("__dummy__") if store.startswith("$") else table
    assert sorted_rows(shown) == sorted_rows(expected)
    return table


def test_values_of_an_older_schema_are_read_with_the_newest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = iter([Old, New])

    def query(frames: Frames) -> DataFrame:
        # Spark 4.0 has it for pandas only.
        pandas = is_older_than("4.1")
        return transformed(frames["events"], next(turns), pandas=pandas, mode="update")

    inputs = {"events": events(batches=2)}
    with settings(spark, AVRO):
        run(spark, inputs=inputs, query=query, mode="update", folder=tmp_path, parts=2)
        path = tmp_path / "checkpoint"
        newest = max(int(one.name) for one in (path / "commits").iterdir() if one.name.isdigit())
        for store in ("one", "several", "byKey"):
            old, new = (compare(spark, path, store, batch) for batch in (0, newest))
            assert "more" not in old.schema.names
            more = new["more"]
            assert 0 < more.null_count < len(more)
    forget_older_schemas(path / "state" / "0" / "_metadata" / "v2")
    with (
        holdfast.open_state(path, store="several") as state,
        pytest.raises(CorruptSegmentError, match="no schema of values has the number 0"),
    ):
        state.to_arrow()
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-spark\[avro\]'"):
        holdfast.open_state(path, store="one")


def forget_older_schemas(folder: Path) -> None:
    file = folder / max((one.name for one in folder.iterdir() if one.name.isdigit()), key=int)
    version, text = file.read_text().split("\n", 1)
    described = json.loads(text)
    for store in described["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = store["stateSchemaFilePaths"][-1:]
    file.write_text(f"{version}\n{json.dumps(described)}")


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in FORMAT_CASES if name.endswith("-avro")])
def test_each_kind_of_state_is_read(name: str, spark: SparkSession, tmp_path: Path) -> None:
    case = FORMAT_CASES[name]
    with settings(spark, case.settings):
        inputs = {"events": events(batches=3)}
        run(spark, inputs=inputs, query=case.query, mode=case.mode, folder=tmp_path)
        path = tmp_path / "checkpoint"
        with pytest.raises(ValueError, match="expected one of") as raised:
            holdfast.open_state(path, store="none")
        for store in str(raised.value).rpartition("[")[2].rstrip("]").replace("'", "").split(", "):
            compare(spark, path, store, 0)
