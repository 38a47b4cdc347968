"""Rows are cast to a schema where no value changes; else the message says what differs."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
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
XY = pa.struct([("x", pa.int64()), ("y", pa.string())])
YX = pa.struct([("y", pa.string()), ("x", pa.int64())])


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
        (pa.string_view(), pa.string(), ["a", None]),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
        (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string()), ["a"]),
        (pa.binary(2), pa.binary(), [b"ab", None]),
        (pa.binary(), pa.binary(2), [b"ab", None]),
        (pa.json_(), pa.string(), ["1", None]),
        (pa.string(), pa.json_(), ["1", None]),
        (pa.int64(), pa.decimal128(19, 0), [2**63 - 1, -(2**63), None]),
        (pa.uint64(), pa.decimal128(22, 2), [2**64 - 1]),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int64()), [[1, 2], None]),
        (pa.list_(pa.int64()), pa.list_(pa.int64(), 2), [[1, 2], None]),
        (pa.list_view(pa.int32()), pa.list_(pa.int64()), [[1, 2], None, []]),
        (pa.large_list_view(pa.string_view()), pa.list_(pa.string()), [["a"], None, ["b", "c"]]),
        (pa.timestamp("ns"), pa.timestamp("us"), [NOON.replace(tzinfo=None), None]),
        (pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("s", "UTC"), [NOON]),
        (pa.list_(pa.timestamp("ns", "UTC")), pa.list_(pa.timestamp("us", "UTC")), [[NOON]]),
        (pa.duration("ns"), pa.duration("us"), [datetime.timedelta(1), None]),
        (pa.time64("ns"), pa.time32("s"), [datetime.time(1), None]),
        (XY, YX, [{"x": 1, "y": "a"}, None]),
        (pa.list_(XY), pa.list_(YX), [[{"x": 1, "y": "a"}]]),
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
        (pa.int64(), pa.decimal128(18, 0), [1], r"column 'v' is int64, expected decimal128\(18, 0"),
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
            [1],
            r"column 'v' is timestamp\[ns, tz=UTC\], expected timestamp\[us, tz=UTC\] \(.*lose",
        ),
        (
            pa.list_(pa.timestamp("ns")),
            pa.list_(pa.timestamp("us")),
            [[1]],
            r"column 'v' is list<item: timestamp\[ns\]>, expected .* \(.*lose data",
        ),
        (pa.time64("ns"), pa.time64("us"), [1], r"column 'v' is time64\[ns\].*lose data"),
        (pa.duration("ns"), pa.duration("us"), [1], r"column 'v' is duration\[ns\].*lose data"),
        (pa.binary(), pa.binary(2), [b"abc"], r"column 'v' is binary, expected fixed_size_binary"),
        (pa.list_(pa.int8()), pa.list_(pa.int8(), 2), [[1]], r"column 'v' is list<item: int8>, ex"),
        (pa.json_(), pa.binary(), ["1"], r"column 'v' is extension<arrow.json>, expected binary"),
        (
            XY,
            pa.struct([("x", pa.int64())]),
            [None],
            "column 'v' is struct<x: int64, y: string>, e",
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


def test_columns_may_be_in_another_order() -> None:
    schema = pa.schema([("w", pa.int64()), ("v", pa.string())])
    done = fitted(pa.record_batch({"v": ["a", "b"], "w": pa.array([1, 2], pa.int32())}), schema)
    assert done.to_pydict() == {"w": [1, 2], "v": ["a", "b"]}
    with pytest.raises(TypeError, match=r"the columns are \['v', 'v'\], expected \['w', 'v'\]"):
        fitted(pa.RecordBatch.from_arrays([["a"], ["b"]], names=["v", "v"]), schema)


def test_extension_types_inside_of_lists_become_their_storage() -> None:
    values = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)
    schema = pa.schema([("v", pa.list_(pa.string()))])
    done = fitted(pa.record_batch([lists], names=["v"]), schema)
    assert done.to_pydict() == {"v": [["1"], ["2"]]}


def test_run_end_encoded_columns_become_plain() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, None]))
    schema = pa.schema([("v", pa.int64())])
    batch = pa.record_batch([runs], names=["v"]).slice(1)
    assert fitted(batch, schema).to_pydict() == {"v": [1, None]}


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


KEPT = pa.schema([("region", pa.string()), ("v", pa.int64())])


class Returning(hf.Operator):
    """Returns what `made` makes of its rows, from `process` or when data ends."""

    region_safe = True

    def __init__(self, made: Callable[[pa.RecordBatch], Any], *, at_end: bool = False) -> None:
        self.made = made
        self.at_end = at_end

    def process(self, batch: pa.RecordBatch) -> Any:
        return None if self.at_end else self.made(batch)

    def on_end_of_data(self) -> Any:
        return self.made(two_rows()) if self.at_end else None


def two_rows() -> pa.RecordBatch:
    return pa.record_batch({"region": ["a", "a"], "v": [1, 2]}, schema=KEPT)


def run(tmp_path: Path, operator: hf.Operator) -> list[dict[str, Any]]:
    pipeline = hf.regional(region_by="region").apply(operator, schema=KEPT, name="some")
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch([[two_rows()]])
        query.end_of_data()
    return [row for file in (tmp_path / "out").iterdir() if file.suffix for row in rows_in(file)]


def rows_in(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def tables(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    yield pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)])
    yield KEPT.empty_table()


def reader(batch: pa.RecordBatch) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(KEPT, [batch.slice(0, 1), batch.slice(1)])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        lambda batch: pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]),
        lambda batch: [pa.Table.from_batches([batch])],
        lambda batch: pa.table({"v": batch["v"].cast(pa.int32()), "region": batch["region"]}),
        tables,
        reader,
    ],
)
def test_tables_are_rows_too(
    tmp_path: Path, made: Callable[[pa.RecordBatch], Any], at_end: bool
) -> None:
    found = run(tmp_path, Returning(made, at_end=at_end))
    assert found == [{"region": "a", "v": 1}, {"region": "a", "v": 2}]


def numbers(batch: pa.RecordBatch) -> Iterator[Any]:
    yield batch
    yield 7


async def later(batch: pa.RecordBatch) -> Any:
    yield batch


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda batch: batch.to_pandas(), "returned pandas.DataFrame"),
        (lambda batch: batch.to_pandas().iloc[:0, :0], "returned pandas.DataFrame"),
        (lambda batch: batch.to_pandas()["v"], "returned pandas.Series"),
        (lambda batch: batch.to_pydict(), "returned dict"),
        (lambda batch: {}, "returned dict"),
        (lambda batch: "", "returned str"),
        (lambda batch: pa.table(batch)["v"], "returned pyarrow.ChunkedArray"),
        (lambda batch: batch["v"].to_numpy(), "returned numpy.ndarray"),
        (lambda batch: 7, "returned int"),
        (later, "returned async_generator"),
        (lambda batch: [batch.to_pandas()], "returned a list with pandas.DataFrame in it"),
        (lambda batch: [batch, None], "returned a list with NoneType in it"),
        (numbers, "yielded int"),
    ],
)
def test_an_operator_that_returns_no_rows_is_told_what_it_returned(
    tmp_path: Path, made: Callable[[pa.RecordBatch], Any], message: str, at_end: bool
) -> None:
    call = "on_end_of_data" if at_end else "process"
    said = rf"operator 'some' in region 'a': {call}\(\) {message}; expected pyarrow.RecordBatch, "
    with pytest.raises(hf.RegionalQueryError, match=said + "pyarrow.Table, an iterable of these"):
        run(tmp_path, Returning(made, at_end=at_end))


def test_a_batch_is_given_as_batches_or_tables(tmp_path: Path) -> None:
    rows = pa.table({"region": ["a", "b"], "v": [1, 2]}, schema=KEPT)
    pipeline = hf.regional(region_by="region").apply(Through(), schema=KEPT, name="through")
    output = pipeline.write_parquet(tmp_path / "out")
    with output.open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    others: list[tuple[Any, str]] = [
        ([[rows.to_pandas()]], "pandas.DataFrame"),
        (rows.to_batches(), "pyarrow.StringArray"),
    ]
    for given, found in others:
        with (
            output.open_local(tmp_path / "ckpt") as query,
            pytest.raises(
                hf.RegionalQueryError, match=rf"given to run_batch\(\) has {found} in it"
            ),
        ):
            query.run_batch(given)
    assert sum(len(rows_in(file)) for file in (tmp_path / "out").glob("*.parquet")) == 2
