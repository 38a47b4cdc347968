"""Rows are split by region without loss, and regions have stable names."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.cli.main import main
from holdfast.regions.base.owners import MAX_NAME_BYTES
from holdfast.regions.base.splitting import split_by_region
from support.regional.hooks import Hooked, Hooks

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


def test_the_time_of_day_in_a_date_is_of_no_matter() -> None:
    column = pa.array([-1, 0, 86_399_999, None], pa.int64()).view(pa.date64())
    parts = split_by_region(pa.record_batch({"key": column}), region_by="key")
    assert [(name, part.num_rows) for name, part in parts] == [
        ('"1969-12-31"', 1),
        ('"1970-01-01"', 2),
        ("null", 1),
    ]


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


def test_a_name_has_one_kibibyte_of_utf8_at_most_and_ends_in_a_digest_then() -> None:
    longest = "é" * (MAX_NAME_BYTES // 2)
    assert names([longest], pa.string()) == [longest]
    (short,) = names([longest + "e"], pa.string())
    digest = hashlib.sha256((longest + "e").encode()).hexdigest()
    assert short == f'"{"é" * 64}... sha256:{digest}'
    # Strings that read like it, or that differ in their last byte, have other names.
    others = names([short, short + '"', longest + "f", longest + "é"], pa.string())
    assert len({short, *others}) == 5
    several = pa.record_batch({"a": [longest, longest + "e"], "b": [1, 1]})
    found = [name for name, _ in split_by_region(several, region_by=["a", "b"])]
    assert [name[:3] for name in found] == ['"["', '"["']
    assert len({short, *found}) == 3


def test_bytes_that_are_not_utf8_are_escaped_as_no_other_text_is() -> None:
    texts = [b"\xff", b"a\xff", b"\xed\xa0\x80", rb"\xff", rb'"\xff"', "ÿ".encode(), b"\x00"]
    expected = [r'"\xff"', r'"a\xff"', r'"\xed\xa0\x80"', r"\xff", r'"\"\\xff\""', "ÿ", "\0"]
    for kind, raw in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        column = pa.array(texts, raw).view(kind)
        batch = pa.record_batch({"key": column, "one": [1] * len(texts)})
        assert [name for name, _ in split_by_region(batch, region_by="key")] == expected
        encoded = batch.set_column(0, "key", column.dictionary_encode())
        assert [name for name, _ in split_by_region(encoded, region_by="key")] == expected
        listed = [name for name, _ in split_by_region(batch, region_by=["key", "one"])]
        assert listed[0] == r'["\xff",1]'
        assert len(set(listed)) == len(texts)


def test_the_form_of_a_column_is_no_part_of_a_name() -> None:
    plain = pa.array(["b", None, "a", "b"])
    forms = [
        plain.dictionary_encode(),
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        runs(plain.to_pylist()),
        runs(plain.to_pylist(), pa.string_view()),
        pa.ExtensionArray.from_storage(Storage(pa.string()), plain),
        pa.ExtensionArray.from_storage(Storage(pa.string_view()), plain.cast(pa.string_view())),
    ]
    for column in forms:
        batch = pa.record_batch({"key": column, "row": range(4)})
        parts = split_by_region(batch, region_by="key")
        assert [(name, part["row"].to_pylist()) for name, part in parts] == [
            ("b", [0, 3]),
            ("null", [1]),
            ("a", [2]),
        ]
    for kind in (pa.decimal32(5, 2), pa.decimal64(5, 2)):
        assert names([Decimal("1.5"), None], kind) == ["1.5", "null"]


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


SHOWN = pa.schema([("id", pa.int64()), ("region", pa.string()), ("value", pa.string())])


class Showing(Hooked, hf.Operator):
    """Puts out the text of every value, and the number of the region's rows so far."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        self.rows.value += batch.num_rows
        shown = [repr(value) for value in batch.column("value").to_pylist()]
        regions = [self.region] * batch.num_rows
        yield pa.RecordBatch.from_arrays([batch.column("id"), regions, shown], schema=SHOWN)


class Storage(pa.ExtensionType):
    """Any type as an extension type."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "holdfast.tests.storage")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _: bytes) -> Storage:
        return cls(storage)


def runs(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    ends = pa.array(range(1, len(values) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))


def listed(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def narrow(values: Sequence[Any]) -> pa.Array:
    """A dictionary with an index of 8 bits, of 100 values: two of them have no room in one."""
    indices = pa.array(range(len(values)), pa.int8())
    more = [f"{values[0]}+{number}" for number in range(100 - len(values))]
    return pa.DictionaryArray.from_arrays(indices, pa.array([*values, *more]))


def parts(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([{"x": value} for value in values], pa.struct([("x", kind)]))


def either(values: Sequence[str], kind: pa.DataType) -> pa.Array:
    ids = pa.array([0] * len(values), pa.int8())
    return pa.UnionArray.from_sparse(ids, [pa.array(values, kind), pa.nulls(len(values))])


FORMS: dict[str, Any] = {
    "string view": lambda values: pa.array(values, pa.string_view()),
    "binary view": lambda values: pa.array([text.encode() for text in values], pa.binary_view()),
    "list of views": lambda values: listed(pa.array(values, pa.string_view())),
    "fixed list of views": lambda v: pa.array([[x] for x in v], pa.list_(pa.string_view(), 1)),
    "large list of views": lambda v: pa.array([[x] for x in v], pa.large_list(pa.string_view())),
    "list view": lambda v: pa.array([[x] for x in v], pa.list_view(pa.string())),
    "map of views": lambda v: pa.array(
        [[(x, x)] for x in v], pa.map_(pa.string_view(), pa.string_view())
    ),
    "struct of views": lambda values: parts(values, pa.string_view()),
    "union of views": lambda values: either(values, pa.string_view()),
    "union": lambda values: either(values, pa.string()),
    "runs": runs,
    "runs of views": lambda values: runs(values, pa.string_view()),
    "runs of lists": lambda values: runs([[value] for value in values]),
    "list of runs": lambda values: listed(runs(values)),
    "struct of runs": lambda values: pa.StructArray.from_arrays([runs(values)], ["x"]),
    "dictionary": lambda values: pa.array(values).dictionary_encode(),
    "dictionary of views": lambda values: pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int8()), pa.array(values, pa.string_view())
    ),
    "dictionary of structs": lambda values: pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int8()), parts(values, pa.string())
    ),
    "dictionary of dictionaries": lambda values: pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int8()), pa.array(values).dictionary_encode()
    ),
    "dictionary with a null": lambda values: pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int8()), pa.array([*values[:-1], None])
    ),
    "narrow dictionary": narrow,
    "list of narrow dictionaries": lambda v: pa.ListArray.from_arrays(
        [*range(len(v)), 100], narrow([*v, *(f"{v[0]}-{number}" for number in range(100 - len(v)))])
    ),
    "struct of narrow dictionaries": lambda v: pa.StructArray.from_arrays([narrow(v)], ["x"]),
    "large string": lambda values: pa.array(values, pa.large_string()),
    "extension": lambda v: pa.ExtensionArray.from_storage(Storage(pa.string()), pa.array(v)),
    "extension of views": lambda values: pa.ExtensionArray.from_storage(
        Storage(pa.string_view()), pa.array(values, pa.string_view())
    ),
    "null": lambda values: pa.nulls(len(values)),
    "interval": lambda v: pa.array(
        [(1, 2, number) for number in range(len(v))], pa.month_day_nano_interval()
    ),
}


def two_batches(made: Any) -> list[pa.RecordBatch]:
    """Rows whose regions take turns; the second batch has other values."""
    return [
        pa.record_batch(
            {
                "id": range(8 * number, 8 * number + 8),
                "key": [f"k{row % 3}" for row in range(8)],
                "value": made([f"{number}.{row}" for row in range(8)]),
                "region": ["r0", "r1"] * 4,
            }
        )
        for number in range(2)
    ]


def shown(folder: Path) -> list[tuple[int, str, str]]:
    table = pa.concat_tables(pq.read_table(file) for file in folder.glob("*.parquet"))
    return sorted((row["id"], row["region"], row["value"]) for row in table.to_pylist())


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_every_form_are_divided_routed_stored_and_replayed(
    form: str, tmp_path: Path, hooks: Hooks
) -> None:
    batches = two_batches(FORMS[form])
    pipeline = (
        hf.regional(region_by="region")
        .apply(Showing(hooks), schema=SHOWN, name="show", parallelism=2, route_by="key")
        .write_parquet(tmp_path / "out")
    )
    hooks.fail_for("r1", range(16))
    with pipeline.open_local(tmp_path / "ckpt") as query:
        query.run_batch([batches])
        assert set(query.latest.failed) == {"r1"}
    hooks.calm()
    with pipeline.open_local(tmp_path / "ckpt") as query:
        query.finish()
        assert query.latest.is_global
    expected = [
        (id, region, repr(value))
        for batch in batches
        for id, region, value in zip(
            *(batch.column(name).to_pylist() for name in ("id", "region", "value")), strict=True
        )
    ]
    assert shown(tmp_path / "out") == expected


class Through(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


@pytest.mark.parametrize("form", [form for form in FORMS if "runs" in form or "views" in form])
def test_rows_in_every_form_pass_between_operators_that_declare_it(
    form: str, tmp_path: Path
) -> None:
    batches = two_batches(FORMS[form])
    schema = batches[0].schema
    pipeline = (
        hf.regional(region_by="region")
        .apply(Through(), schema=schema, name="before")
        .apply(Showing(), schema=SHOWN, name="show", parallelism=2, route_by="key")
        .write_parquet(tmp_path / "out")
    )
    with pipeline.open_local(tmp_path / "ckpt") as query:
        query.run_batch([batches])
    values = [repr(value) for batch in batches for value in batch.column("value").to_pylist()]
    assert [value for _, _, value in shown(tmp_path / "out")] == values


LONG = b"x" * MAX_NAME_BYTES
ANY_VALUES: list[bytes | None] = [
    b"\xff",
    rb"\xff",
    rb'"\xff"',
    b"\xed\xa0\x80",
    b"\xff" * 2000,
    b"a\x00b",
    b"a b",
    b"\n\r\t\x1b[31m\x7f",
    b"",
    None,
    b"null",
    b"7",
    b"../../up",
    "é".encode(),
    "e\u0301".encode(),
    LONG,
    LONG + b"y",
    LONG + b"z",
]


def of_any_region(first: int) -> pa.RecordBatch:
    """A row for each value; the keys are the values, too."""
    values = pa.array(ANY_VALUES, pa.binary()).view(pa.string())
    ids = range(first, first + len(ANY_VALUES))
    return pa.record_batch({"region": values, "key": values, "id": ids})


class Counting(Hooked, hf.Operator):
    """Puts out how many rows of a region and key there were."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.map("rows")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        for raw, id in zip(
            batch.column("key").view(pa.binary()).to_pylist(),
            batch.column("id").to_pylist(),
            strict=True,
        ):
            key = None if raw is None else raw.decode("utf-8", "surrogateescape")
            self.rows[key] = self.rows.get(key, 0) + 1
            yield pa.record_batch([[id], [self.region], [f"{self.rows[key]}"]], schema=SHOWN)


def test_any_value_is_a_region_with_one_name_on_every_path(
    tmp_path: Path, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(checkpoint: str, parallelism: int, **options: Any) -> hf.LocalQuery:
        counting = hf.regional(region_by="region").apply(
            Counting(hooks),
            schema=SHOWN,
            name="count",
            parallelism=parallelism,
            route_by="key",
        )
        output = counting.write_parquet(tmp_path / f"out-{checkpoint}")
        return output.open_local(tmp_path / checkpoint, max_failure_ratio=0.6, **options)

    count = len(ANY_VALUES)
    expected = [name for name, _ in split_by_region(of_any_region(0), region_by="region")]
    assert len(set(expected)) == count
    with opened("first", 2) as query:
        query.run_batch([[of_any_region(0)]])
        assert list(query.latest.regions) == sorted(expected)
        failing = expected[::2]
        hooks.on_rows = lambda region, _: 1 // (region not in failing)
        query.run_batch([[of_any_region(count)]])
        assert set(query.latest.failed) == set(failing)
        assert set(query.metrics().regions) == set(expected)
        hooks.calm()
    with opened("first", 2) as query:
        query.finish()
        query.run_batch([[of_any_region(2 * count)]])
        last = query.latest.id
        query.stop_with_savepoint(tmp_path / "saved")
    assert main(["show", str(tmp_path / "first"), "--id", str(last), "--json"]) == 0
    assert {one["region"] for one in json.loads(capsys.readouterr().out)["regions"]} == {*expected}
    with opened("next", 3, restore=hf.restore(tmp_path / "saved")) as query:
        query.run_batch([[of_any_region(3 * count)]])
        assert set(query.latest.regions) == set(expected)
    found = shown(tmp_path / "out-first") + shown(tmp_path / "out-next")
    assert found == [
        (number * count + place, region, str(number + 1))
        for number in range(4)
        for place, region in enumerate(expected)
    ]
