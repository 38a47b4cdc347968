"""Rows are split by region without loss, and regions have stable names."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.regions.base.splitting import MAX_REGION_BYTES, split_by_region

UTC = dt.UTC


def names(values: Sequence[Any], kind: pa.DataType) -> list[str]:
    """Region names of the values of one column, in order of first appearance."""
    batch = pa.record_batch({"key": pa.array(values, kind)})
    return [name for name, _ in split_by_region(batch, region_by="key")]


def test_rows_keep_their_order_and_regions_that_of_their_first_row() -> None:
    batch = pa.record_batch({"key": ["b", "a", "b", "c", "a"], "row": [0, 1, 2, 3, 4]})
    parts = split_by_region(batch, region_by="key")
    assert [(name, part["row"].to_pylist()) for name, part in parts] == [
        ("b", [0, 2]),
        ("a", [1, 4]),
        ("c", [3]),
    ]


def test_schema_and_its_metadata_stay() -> None:
    fields = [
        pa.field("key", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("tags", pa.list_(pa.string()), metadata={"unit": "none"}),
        pa.field("point", pa.struct({"x": pa.float32()})),
    ]
    schema = pa.schema(fields, metadata={"made": "here"})
    rows = [
        {"key": "b", "tags": ["x", None], "point": {"x": 1.0}},
        {"key": "a", "tags": None, "point": None},
        {"key": "b", "tags": [], "point": {"x": None}},
    ]
    parts = split_by_region(pa.RecordBatch.from_pylist(rows, schema), region_by="key")
    assert [part.to_pylist() for _, part in parts] == [[rows[0], rows[2]], [rows[1]]]
    assert all(part.schema.equals(schema, check_metadata=True) for _, part in parts)


def test_a_batch_of_one_region_is_returned_as_it_is() -> None:
    batch = pa.record_batch({"key": ["a", "a"]})
    ((name, part),) = split_by_region(batch, region_by="key")
    assert (name, part is batch) == ("a", True)


def test_rows_that_arrive_region_by_region_are_not_copied() -> None:
    batch = pa.record_batch({"key": ["b", "b", "a"], "row": [0, 1, 2]})
    parts = split_by_region(batch, region_by="key")
    addresses = {part["row"].buffers()[1].address for _, part in parts}
    assert addresses == {batch["row"].buffers()[1].address}
    assert [part["row"].to_pylist() for _, part in parts] == [[0, 1], [2]]


def test_a_batch_without_rows_has_no_regions() -> None:
    batch = pa.record_batch({"key": pa.array([], pa.string())})
    assert split_by_region(batch, region_by="key") == []


def test_strings_name_their_region_themselves() -> None:
    texts = ["JFK", " ", "7", "[1]", "true", "zürich/☃", "line\nbreak"]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert names(texts, kind) == texts


def test_a_string_that_reads_like_another_value_is_quoted() -> None:
    assert names([None, "null", '"null"', '"', ""], pa.string()) == [
        "null",
        '"null"',
        '"\\"null\\""',
        '"\\""',
        '""',
    ]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
)
def test_integers_of_every_width_have_the_same_names(kind: pa.DataType) -> None:
    assert names([7, None, 0], kind) == ["7", "null", "0"]


def test_large_integers_keep_every_digit() -> None:
    assert names([2**64 - 1], pa.uint64()) == ["18446744073709551615"]
    assert names([-(2**63)], pa.int64()) == ["-9223372036854775808"]


def test_decimals_of_every_scale_have_the_same_names() -> None:
    values = [Decimal("1.5"), Decimal("100"), Decimal("0"), None, Decimal("-0.25")]
    expected = ["1.5", "100", "0", "null", "-0.25"]
    for kind in (pa.decimal128(10, 2), pa.decimal128(38, 20), pa.decimal256(50, 30)):
        assert names(values, kind) == expected
    whole = [Decimal("100"), Decimal("0"), Decimal("-20")]
    for kind in (pa.decimal128(5, 0), pa.decimal128(5, 2)):
        assert names(whole, kind) == ["100", "0", "-20"]


def test_decimals_keep_every_digit() -> None:
    texts = [f"1234567890123456789012345678901234567{last}" for last in (7, 8)]
    assert names([Decimal(text) for text in texts], pa.decimal128(38, 0)) == texts


def test_booleans_and_missing_values_are_json() -> None:
    assert names([True, None, False], pa.bool_()) == ["true", "null", "false"]
    assert names([None, None], pa.null()) == ["null"]


def test_dates_are_iso_and_have_no_last_year() -> None:
    days = [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)]
    expected = ['"2024-02-29"', "null", '"1969-12-31"']
    assert names(days, pa.date32()) == expected
    assert names(days, pa.date64()) == expected
    assert names([2**31 - 1], pa.date32()) == ['"5881580-07-11"']


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_have_the_same_names(unit: str) -> None:
    moments = [dt.datetime(2024, 2, 29, 12, 30), None, dt.datetime(1969, 12, 31, 23, 59, 59)]
    expected = ['"2024-02-29T12:30:00"', "null", '"1969-12-31T23:59:59"']
    assert names(moments, pa.timestamp(unit)) == expected


def test_fractions_of_a_second_have_no_trailing_zeros() -> None:
    assert names([0, 1, 1_500_000_000, -1], pa.timestamp("ns")) == [
        '"1970-01-01T00:00:00"',
        '"1970-01-01T00:00:00.000000001"',
        '"1970-01-01T00:00:01.5"',
        '"1969-12-31T23:59:59.999999999"',
    ]


def test_the_zone_in_which_timestamps_are_shown_does_not_name_the_region() -> None:
    moment = dt.datetime(2024, 7, 1, 12, tzinfo=UTC)
    for zone in ("UTC", "Europe/Rome", "+05:30"):
        assert names([moment], pa.timestamp("us", zone)) == ['"2024-07-01T12:00:00Z"']


def test_several_columns_are_named_by_a_json_list_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "origin": ["JFK", "é☃", "null", None, '"'],
            "month": pa.array([1, 2, None, 1, 1], pa.int32()),
            "day": pa.array([dt.date(2013, 1, 1)] * 5),
        }
    )
    parts = split_by_region(batch, region_by=["origin", "month"])
    assert [name for name, _ in parts] == [
        '["JFK",1]',
        '["é☃",2]',
        '["null",null]',
        "[null,1]",
        '["\\"",1]',
    ]
    ((name, _), *_) = split_by_region(batch, region_by=["day", "month", "origin"])
    assert name == '["2013-01-01",1,"JFK"]'


def test_a_name_may_have_one_kibibyte_of_utf8_and_no_more() -> None:
    longest = "é" * (MAX_REGION_BYTES // 2)
    assert names([longest], pa.string()) == [longest]
    with pytest.raises(ValueError, match=r"'key'.* 1025 bytes .*'éé.*at most 1024"):
        names(["x", longest + "e"], pa.string())


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("rows", [0, 1])
def test_floating_point_columns_are_refused(kind: pa.DataType, rows: int) -> None:
    column = pa.array([0.0] * rows, pa.float64()).cast(kind)
    batch = pa.record_batch({"speed": column})
    with pytest.raises(TypeError, match=r"'speed' has type .*no stable equality; cast it"):
        split_by_region(batch, region_by="speed")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x"]),
        pa.array([[1]]),
        pa.array([{"x": 1}]),
        pa.array([dt.timedelta(1)]),
        pa.array([1.5]).dictionary_encode(),
    ],
)
def test_columns_without_a_text_are_refused(column: pa.Array) -> None:
    batch = pa.record_batch({"key": column})
    with pytest.raises(TypeError, match=r"'key' has type .*cannot name a region"):
        split_by_region(batch, region_by="key")


@pytest.mark.parametrize(
    ("region_by", "message"),
    [
        ([], "names no column"),
        (["key", "key"], "'key' twice"),
        ("kex", "'kex' is not in the batch: .*columns 'key', 'row', 'row'"),
        (["key", "row"], "'row' is there 2 times"),
    ],
)
def test_a_column_that_is_not_there_once_is_an_error_that_names_it(
    region_by: str | list[str], message: str
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"])] * 3, names=["key", "row", "row"])
    with pytest.raises(ValueError, match=message):
        split_by_region(batch, region_by=region_by)


VALUES = {
    pa.string(): st.text(alphabet='n"ul\\[,]1☃', max_size=5),
    pa.int32(): st.integers(-3, 3),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.decimal128(6, 2): st.decimals(-99, 99, places=2),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ms", "Europe/Rome"): st.datetimes(
        # Zones of before 1970 are of no matter here, and the ends of the calendar overflow.
        dt.datetime(1970, 1, 2),
        dt.datetime(2100, 1, 1),
        timezones=st.just(UTC),
    ).map(lambda moment: moment.replace(microsecond=0)),
}


@st.composite
def columns(draw: st.DrawFn) -> dict[str, pa.Array]:
    rows = draw(st.integers(0, 40))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    made = {}
    for number, kind in enumerate(kinds):
        few = draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=4))
        values = draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows))
        column = pa.array(values, kind)
        if draw(st.booleans()):
            column = column.dictionary_encode()
        made[f"key{number}"] = column
    return made


@settings(deadline=None)
@given(columns())
def test_splitting_equals_a_loop_over_the_rows(keys: dict[str, pa.Array]) -> None:
    rows = len(keys["key0"])
    batch = pa.record_batch({**keys, "row": pa.array(range(rows), pa.int64())})
    expected: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*(key.to_pylist() for key in keys.values()), strict=True)):
        expected.setdefault(values, []).append(row)
    parts = split_by_region(batch, region_by=list(keys))
    assert [part["row"].to_pylist() for _, part in parts] == list(expected.values())
    # Different values have different names, and a name does not depend on what is beside it.
    assert len({name for name, _ in parts}) == len(expected)
    for name, part in parts:
        assert [other for other, _ in split_by_region(part, region_by=list(keys))] == [name]


@pytest.mark.parametrize("regions", [3, 300, 70_000])
def test_any_number_of_regions_is_sorted_right(regions: int) -> None:
    rows = 2 * regions
    keys = [row * 11 % regions for row in range(rows)]
    batch = pa.record_batch({"key": pa.array(keys, pa.int64()), "row": pa.array(range(rows))})
    parts = split_by_region(batch, region_by="key")
    assert [name for name, _ in parts] == [str(key) for key in keys[:regions]]
    assert all(
        part["row"].to_pylist() == [row, row + regions] for row, (_, part) in enumerate(parts)
    )
