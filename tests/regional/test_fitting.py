"""Rows are cast to a schema where no value changes; else the message says what differs."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.regions.task.fitting import fitted

NOT_NULL = pa.field("v", pa.int32(), nullable=False)


def one(field: pa.Field | pa.DataType, values: list[Any]) -> pa.RecordBatch:
    if isinstance(field, pa.DataType):
        field = pa.field("v", field)
    return pa.record_batch([pa.array(values, field.type)], schema=pa.schema([field]))


NOON = datetime.datetime(2026, 3, 29, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("found", "wanted", "values"),
    [
        (pa.timestamp("us", "America/New_York"), pa.timestamp("us", "UTC"), [NOON, None]),
        (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC"), [NOON]),
        (NOT_NULL, pa.int32(), [1, 2]),
        (pa.int32(), NOT_NULL, [1, 2]),
        (pa.int32(), pa.int64(), [-(2**31), 2**31 - 1]),
        (pa.uint32(), pa.int64(), [2**32 - 1]),
        (pa.int32(), pa.float64(), [2**31 - 1]),
        (pa.float32(), pa.float64(), [0.5]),
        (pa.large_string(), pa.string(), ["a", None]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b", "a"]),
        (pa.large_binary(), pa.binary(), [b"a"]),
        (pa.null(), pa.string(), [None]),
        (pa.decimal128(5, 2), pa.decimal128(10, 3), [None]),
        (pa.list_(pa.field("element", pa.int32(), nullable=False)), pa.list_(pa.int64()), [[1]]),
        (
            pa.struct([pa.field("t", pa.timestamp("us", "Asia/Tokyo"), nullable=False)]),
            pa.struct([pa.field("t", pa.timestamp("us", "UTC"))]),
            [{"t": NOON}],
        ),
    ],
)
def test_what_says_the_same_is_cast(found: Any, wanted: Any, values: list[Any]) -> None:
    schema = pa.schema([wanted if isinstance(wanted, pa.Field) else pa.field("v", wanted)])
    done = fitted(one(found, values), schema)
    assert done.schema.equals(schema)
    assert done.column(0).to_pylist() == values


@pytest.mark.parametrize(
    ("found", "wanted", "values", "message"),
    [
        (pa.int64(), pa.int32(), [1], "column 'v' is int64, expected int32"),
        (pa.uint64(), pa.int64(), [1], "column 'v' is uint64, expected int64"),
        (pa.int8(), pa.uint8(), [1], "column 'v' is int8, expected uint8"),
        (pa.int64(), pa.float64(), [1], "column 'v' is int64, expected double"),
        (pa.float64(), pa.int64(), [1.0], "column 'v' is double, expected int64"),
        (pa.string(), pa.int64(), ["1"], "column 'v' is string, expected int64"),
        (
            pa.timestamp("us"),
            pa.timestamp("us", "UTC"),
            [None],
            r"column 'v' is timestamp\[us\], expected timestamp\[us, tz=UTC\]",
        ),
        (
            pa.timestamp("ns", "UTC"),
            pa.timestamp("us", "UTC"),
            [None],
            r"column 'v' is timestamp\[ns, tz=UTC\], expected timestamp\[us, tz=UTC\]",
        ),
        (pa.int32(), NOT_NULL, [1, None], "column 'v' has 1 nulls, expected none, since it is"),
        (
            pa.list_(pa.int32()),
            pa.list_(pa.field("element", pa.int32(), nullable=False)),
            [[1]],
            "column 'v' is list<item: int32>, expected list<element: int32 not null>",
        ),
    ],
)
def test_what_may_change_a_value_is_refused_with_what_differs(
    found: Any, wanted: Any, values: list[Any], message: str
) -> None:
    schema = pa.schema([wanted if isinstance(wanted, pa.Field) else pa.field("v", wanted)])
    with pytest.raises(TypeError, match=message):
        fitted(one(found, values), schema)


def test_columns_are_compared_by_name() -> None:
    schema = pa.schema([("w", pa.int32())])
    with pytest.raises(TypeError, match=r"the columns are \['v'\], expected \['w'\]"):
        fitted(one(pa.int32(), [1]), schema)


class Through(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def test_rows_of_another_time_zone_and_without_nulls_pass_an_operator(tmp_path: Path) -> None:
    declared = pa.schema(
        [
            pa.field("region", pa.string()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("one", pa.int32()),
        ]
    )
    given = pa.schema(
        [
            pa.field("region", pa.string()),
            pa.field("at", pa.timestamp("us", "America/New_York")),
            pa.field("one", pa.int32(), nullable=False),
        ]
    )
    rows = pa.record_batch([["a"], pa.array([NOON], given.field("at").type), [1]], schema=given)
    pipeline = hf.regional(region_by="region").apply(Through(), schema=declared, name="through")
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
        assert query.latest.is_global
    table = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert table.to_pylist() == [{"region": "a", "at": NOON, "one": 1}]


def test_an_operator_that_puts_out_something_else_is_told_what(tmp_path: Path) -> None:
    declared = pa.schema([("region", pa.string()), ("v", pa.int32())])
    rows = pa.record_batch({"region": ["a"], "v": pa.array([1], pa.int64())})
    pipeline = hf.regional(region_by="region").apply(Through(), schema=declared, name="through")
    with (
        pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query,
        pytest.raises(
            hf.RegionalQueryError,
            match=r"'through' in region 'a' put out rows that do not fit the schema given to "
            "apply.*: column 'v' is int64, expected int32",
        ),
    ):
        query.run_batch([[rows]])
