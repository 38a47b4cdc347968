"""Tables by key: batches of Arrow types in and out, and the rows of a dict, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.regions.base.saved import StateError
from support.regional.seeds import new_seeds
from support.regional.table_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.manager.close()


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int16": (pa.int16(), [-(2**15), 0, 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), -5, 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 128, 255]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "float32": (pa.float32(), [float("-inf"), -1.5, 0.0, 2.5, float("inf")]),
    "float64": (pa.float64(), [-1e300, -0.5, 0.0, 1e-300, 7.0]),
    "string": (pa.string(), ["", "\0", "\0\0", "a", "a\0", "aé", "b"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\xff", b"\x01", b"\xff", b"\xff\xff"]),
    "date": (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    "duration": (pa.duration("ms"), [timedelta(seconds=-1), timedelta(0), timedelta(days=1)]),
    "decimal": (pa.decimal128(20, 2), [Decimal("-5.25"), Decimal("0.00"), Decimal("9.10")]),
}


@pytest.mark.parametrize("name", VALUES)
def test_keys_and_values_of_every_type_come_back_in_order(world: World, name: str) -> None:
    kind, values = VALUES[name]
    for number in (0, 1):
        registry = world.begin()
        table = registry.table("t", key=kind, value={"own": kind, "none": kind})
        same = pa.array(values, kind)
        rows = pa.table({"key": same, "own": same, "none": [None] * len(values)})
        if number == 0:
            table.upsert(rows.take(list(reversed(range(len(values))))))
        expected = [{"key": value, "own": value, "none": None} for value in values]
        assert pa.Table.from_batches(table.scan()).to_pylist() == expected
        found = table.get(pa.array([*values, values[0]], kind))
        assert found.schema.field("own").type == kind
        assert found.column("own").to_pylist() == [*values, values[0]]
        assert len(table) == len(values)
        world.complete(registry)


def test_what_is_not_there_is_null(world: World) -> None:
    table = world.begin().table("t", key=pa.int64(), value=pa.string())
    table.upsert([1, 2, 1], ["a", None, "b"])
    assert table.get([3, 1, 2]).column("value").to_pylist() == [None, "b", None]
    assert table.contains([3, 1, 2]).to_pylist() == [False, True, True]
    assert table.delete([3, 1, 1]).to_pylist() == [False, True, False]
    assert len(table) == 1
    assert table.get([]).num_rows == 0
    assert table.contains(pa.array([], pa.int64())).to_pylist() == []
    table.upsert([], [])


def test_slices_and_chunks_of_arrays_are_rows(world: World) -> None:
    table = world.begin().table("t", key=pa.string(), value={"n": pa.int64(), "on": pa.bool_()})
    rows = pa.table(
        {
            "key": [f"k{number}" for number in range(40)],
            "n": [None if number % 3 == 0 else number for number in range(40)],
            "on": [number % 2 == 0 for number in range(40)],
        }
    )
    table.upsert(pa.concat_tables([rows.slice(3, 10), rows.slice(20, 5)]))
    (batch,) = rows.slice(5, 6).to_batches()
    assert table.get(batch).to_pylist() == batch.drop_columns(["key"]).to_pylist()
    assert len(table) == 15


def test_one_key_is_used_like_a_dict(world: World) -> None:
    registry = world.begin()
    table = registry.table("t", key={"site": pa.string(), "id": pa.int32()}, value=pa.float64())
    table["bern", 7] = 1.5
    table[{"id": 8, "site": "bern"}] = 2.5
    assert table["bern", 8] == 2.5
    assert ("bern", 7) in table
    del table["bern", 7]
    assert ("bern", 7) not in table
    for missing in (lambda: table["bern", 7], lambda: table.__delitem__(("bern", 7))):
        with pytest.raises(KeyError):
            missing()
    wide = registry.table("wide", key=pa.int64(), value={"a": pa.int64(), "b": pa.string()})
    wide[1] = {"a": 5, "b": None}
    assert wide[1] == {"a": 5, "b": None}


def test_scans_take_a_prefix_or_a_range(world: World) -> None:
    table = world.begin().table(
        "t", key={"site": pa.string(), "id": pa.int32()}, value={"v": pa.int64()}
    )
    keys = [(site, number) for site in ("a", "a\0", "ab", "b") for number in (-2, 0, 5)]
    sites, ids = zip(*keys, strict=True)
    table.upsert(pa.table({"site": sites, "id": pa.array(ids, pa.int32()), "v": range(12)}))

    def found(**bounds: Any) -> list[tuple[str, int]]:
        return [(row["site"], row["id"]) for b in table.scan(**bounds) for row in b.to_pylist()]

    assert found() == keys
    for site in ("a", "a\0", "ab", "b", "c", ""):
        assert found(prefix=site) == [key for key in keys if key[0] == site]
    assert found(prefix=("ab", 0)) == [("ab", 0)]
    bounds: list[Any] = [("a",), ("a", 0), ("ab", -2), ("b",), ("b", 6), ("",)]
    for start in [None, *bounds]:
        for stop in [None, *bounds]:
            expected = [
                key
                for key in keys
                if (start is None or key[: len(start)] >= start)
                and (stop is None or key[: len(stop)] < stop)
            ]
            assert found(start=start, stop=stop) == expected, (start, stop)
    assert found(prefix={"site": "b"}) == [("b", -2), ("b", 0), ("b", 5)]
    with pytest.raises(StateError, match="a prefix, or start and stop"):
        found(prefix="a", stop="b")
    for wrong in (("a", 1, 2), {"id": 1}, {"site": "a", "no": 1}, ()):
        with pytest.raises(StateError, match="first ones of them"):
            found(prefix=wrong)


def test_a_scan_sees_the_rows_of_its_beginning(world: World) -> None:
    table = world.begin().table("t", key=pa.int64(), value=pa.binary())
    numbers = list(range(3000))
    table.upsert(numbers, [bytes(4096)] * 3000)
    scan = table.scan()
    first = next(scan)
    assert first.num_rows < 3000
    table.delete(numbers)
    table.upsert([5000], [b""])
    rest = [key for batch in scan for key in batch.column("key").to_pylist()]
    assert first.column("key").to_pylist() + rest == numbers
    left = table.scan()
    next(left)
    left.close()  # type: ignore[attr-defined]  # a generator
    assert len(table) == 1


REFUSED: dict[str, tuple[Any, str]] = {
    "a null": (lambda t: t.upsert([None], ["a"]), '"key" is null in row 0'),
    "another type": (lambda t: t.get(["x"]), "'key' is declared as int64"),
    "a number that is too large": (lambda t: t.get(pa.array([2**64 - 1], pa.uint64())), "int64"),
    "no such column": (lambda t: t.get(pa.table({"k": [1]})), "no column 'key', only 'k'"),
    "fewer values": (lambda t: t.upsert([1, 2], ["a"]), "has 1 rows, the first one 2"),
    "several values of one key": (lambda t: t[1, 2], "expected values for the columns key"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_rows_that_do_not_fit_are_refused(world: World, what: str) -> None:
    table = world.begin().table("t", key=pa.int64(), value=pa.string())
    call, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        call(table)
    assert len(table) == 0


HALF = datetime(2026, 1, 1, 12, 0, 0, 500_000)
THIRDS = [Decimal("0.33"), Decimal("1.5")]

# By the type of the column: values that another value of the type would stand for.
CHANGED: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), [1, 1.5]),
    (pa.int64(), [np.float64(1.5)]),
    (pa.int64(), [Decimal("1.5")]),
    (pa.int64(), np.array([1.5])),
    (pa.int64(), pa.array([1.5])),
    (pa.int64(), pa.chunked_array([[1.0], [1.5]])),
    (pa.int64(), pa.array(["1", "01"])),
    (pa.int8(), pa.array([300])),
    (pa.bool_(), pa.array([2])),
    (pa.float32(), [0.1]),
    (pa.float32(), np.array([float("nan"), 0.1])),
    (pa.float32(), pa.array([None, float("nan"), 0.1])),
    (pa.float32(), [2**24 + 1]),
    (pa.float64(), [2**53 + 1]),
    (pa.float64(), [np.uint64(2**64 - 1)]),
    (pa.float64(), pa.array([Decimal("0.12345678901234567890")])),
    (pa.decimal128(3, 1), pa.array([0.15])),
    (pa.decimal128(3, 1), THIRDS),
    (pa.decimal128(3, 1), pa.array(THIRDS)),
    (pa.timestamp("s"), [HALF]),
    (pa.timestamp("ms"), pa.array([HALF.replace(microsecond=1)])),
    (pa.timestamp("s"), [Decimal("1.5")]),
    (pa.timestamp("us"), pa.array([2**62], pa.timestamp("s"))),
    (pa.date32(), [HALF]),
    (pa.date32(), pa.array([HALF])),
    (pa.time32("s"), [HALF.time()]),
    (pa.time64("us"), pa.array([HALF])),
    (pa.time64("us"), [HALF.time().replace(tzinfo=UTC)]),
    (pa.duration("s"), [timedelta(milliseconds=1)]),
    (pa.duration("us"), pa.array([1], pa.duration("ns"))),
]


@pytest.mark.parametrize("place", ["key", "value"])
@pytest.mark.parametrize(("kind", "values"), CHANGED)
def test_a_value_that_would_become_another_one_is_refused(
    world: World, kind: pa.DataType, values: Any, place: str
) -> None:
    columns = {"key": pa.int64(), "value": pa.int64(), place: kind}
    table = world.begin().table("t", **columns)
    count = range(len(values))
    keys, rows = (values, count) if place == "key" else (count, values)
    with pytest.raises(StateError, match=f"column '{place}' is declared as .*: "):
        table.upsert(keys, rows)
    assert len(table) == 0
    if place == "key":
        for call in (table.get, table.contains, table.delete):
            with pytest.raises(StateError, match="column 'key' is declared as"):
                call(values)


# By the type of the column: the same values in other types.
SAME: list[tuple[pa.DataType, Any, list[Any]]] = [
    (pa.int64(), [1.0, np.int8(2), Decimal("3.0"), None], [1, 2, 3, None]),
    (pa.int64(), pa.array(["1"]), [1]),
    (pa.uint64(), [np.uint64(2**64 - 1)], [2**64 - 1]),
    (pa.float32(), [0.5, float("nan"), np.float32(0.1)], [0.5, None, float(np.float32(0.1))]),
    (pa.float32(), pa.array([0.5, float("nan")]), [0.5, None]),
    (pa.decimal128(3, 1), pa.array([0.1]), [Decimal("0.1")]),
    (pa.timestamp("s", "UTC"), [HALF.replace(microsecond=0)], [HALF.replace(microsecond=0)]),
    (pa.timestamp("s"), [5], [datetime(1970, 1, 1, 0, 0, 5)]),
    (pa.date32(), [datetime(2026, 1, 1)], [date(2026, 1, 1)]),
    (pa.string(), pa.array(["a"]).dictionary_encode(), ["a"]),
    (pa.string(), ["a", b"b", np.str_("c")], ["a", "b", "c"]),
    (pa.int64(), pa.nulls(1), [None]),
]


@pytest.mark.parametrize(("kind", "values", "kept"), SAME)
def test_a_value_that_stays_the_same_is_cast(
    world: World, kind: pa.DataType, values: Any, kept: list[Any]
) -> None:
    table = world.begin().table("t", key=pa.int64(), value=kind)
    table.upsert(range(len(values)), values)
    for found, value in zip(table.get(range(len(values)))["value"].to_pylist(), kept, strict=True):
        if isinstance(found, float) and found != found:
            found = None
        assert (found.replace(tzinfo=None) if isinstance(found, datetime) else found) == value


def test_dictionaries_with_too_many_values_together_are_keys(world: World) -> None:
    small = pa.dictionary(pa.int8(), pa.string())
    chunks = [pa.array([str(n) for n in range(at, at + 100)], small) for at in (0, 100)]
    table = world.begin().table("t", key=pa.string(), value=pa.int64())
    table.upsert(pa.chunked_array(chunks), range(200))
    assert table["150"] == 150


def test_one_key_or_bound_that_would_become_another_one_is_refused(world: World) -> None:
    table = world.begin().table("t", key=pa.int64(), value=pa.float32())
    table[1] = 2.0
    said = (
        "column 'key' is declared as int64: 1.5 would become 1: round or cast the values "
        "yourself, or declare another type"
    )
    for call in (
        lambda: table[1.5],
        lambda: 1.5 in table,
        lambda: table.__delitem__(1.5),
        lambda: table.__setitem__(1.5, 3.0),
        lambda: list(table.scan(start=1.5)),
        lambda: list(table.scan(prefix=1.5)),
    ):
        with pytest.raises(StateError, match=said):
            call()
    with pytest.raises(StateError, match=r"column 'value' .*: 0\.1 would become 0\.1000"):
        table[1] = 0.1
    # The advice: rounded, or of another type.
    table[round(1.5)] = np.float32(0.1)
    table[1.0] = 4
    assert (table[1], table[2]) == (4.0, float(np.float32(0.1)))
    other = world.begin().table("other", key=pa.float64(), value=pa.float64())
    other[1.5] = 0.1
    assert other[1.5] == 0.1


DECLARED: dict[str, tuple[Any, Any, str]] = {
    "nested": (pa.int64(), pa.list_(pa.int64()), "column 'value' of type list"),
    "half floats": (pa.float16(), pa.int64(), "column 'key' of type halffloat"),
    "no column": ({}, pa.int64(), "at least one column"),
    "no type": ("int64", pa.int64(), "expected an Arrow type"),
    "twice": ({"a": pa.int64()}, {"a": pa.int64()}, "'a' is both in the key and in the value"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_columns_that_cannot_be_kept_are_refused(world: World, what: str) -> None:
    key, value, message = DECLARED[what]
    with pytest.raises(StateError, match=f"state 't' of operator 'count'.*{message}"):
        world.begin().table("t", key=key, value=value)


def test_a_table_of_other_columns_is_refused(world: World) -> None:
    registry = world.begin()
    registry.table("t", key=pa.int64(), value=pa.string())
    world.complete(registry)
    with pytest.raises(StateError, match=r"the checkpoint has a table of .*int64.* declares a map"):
        world.begin().map("t")
    with pytest.raises(StateError, match=r"the checkpoint has a table of .* declares a table of"):
        world.begin().table("t", key=pa.int32(), value=pa.string())


def test_a_batch_writes_what_it_changed(world: World) -> None:
    for number in range(12):
        registry = world.begin()
        table = registry.table("t", key=pa.int64(), value={"a": pa.int64(), "b": pa.float64()})
        before = world.manager.stats().physical_bytes
        if number == 0:
            keys = np.arange(50_000)
            table.upsert(pa.table({"key": keys, "a": keys, "b": keys * 0.5}))
        else:
            keys = np.arange(100) * 17 + number
            table.upsert(pa.table({"key": keys, "a": keys, "b": keys * 0.25}))
        world.complete(registry)
        written = world.manager.stats().physical_bytes - before
        assert number == 0 or written < 30_000, number


# --- pipelines ----------------------------------------------------------------------------------

REGIONS = [f"r{number}" for number in range(4)]
ROWS = pa.schema(
    [("region", pa.string()), ("device", pa.string()), ("amount", pa.int64()), ("drop", pa.bool_())]
)
FOUND = pa.schema(
    [("region", pa.string()), ("seen", pa.int64()), ("device", pa.string()), ("total", pa.int64())]
)

#: Regions that fail, after their operator changed its table.
FAILING: set[str] = set()


class Totals(hf.Operator):
    """Sums amounts by device; puts its whole table out after each batch."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.seen = ctx.state.value("seen", 0)
        self.totals = ctx.state.table("totals", key={"device": pa.string()}, value=pa.int64())

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        for device, amount, drop in zip(
            *(batch.column(n).to_pylist() for n in (1, 2, 3)), strict=True
        ):
            if drop:
                self.totals.delete([device])
            else:
                known = self.totals.get([device]).column(0)[0].as_py()
                self.totals.upsert([device], [amount + (known or 0)])
        if self.region in FAILING:
            raise RuntimeError("the region fails")
        self.seen.value += batch.num_rows
        for rows in self.totals.scan():
            count = rows.num_rows
            found = [[self.region] * count, [self.seen.value] * count, *rows.columns]
            yield pa.table(found, schema=FOUND)


def rows_of(history: random.Random) -> list[tuple[str, str, int, bool]]:
    return [
        (region, f"device {history.randrange(12)}", history.randrange(100), history.random() < 0.1)
        for region in REGIONS
        for _ in range(history.randrange(1, 9))
    ]


def table_of(rows: Sequence[tuple[str, str, int, bool]]) -> pa.Table:
    columns: Any = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ROWS, strict=True)], schema=ROWS)


def totals(path: Path, published: dict[str, tuple[int, dict[str, int]]], **options: Any) -> Any:
    def publish(rows: pa.Table, checkpoint: int) -> None:
        for row in rows.to_pylist():
            seen, found = published.get(row["region"], (0, {}))
            if row["seen"] > seen:
                seen, found = row["seen"], {}
            found[row["device"]] = row["total"]
            published[row["region"]] = seen, found

    return (
        hf.regional(region_by="region")
        .apply(Totals(), schema=FOUND, name="totals")
        .foreach_batch(publish)
        .open_local(
            path, max_failure_ratio=0.8, max_consecutive_failures=1000, num_retained=2, **options
        )
    )


def run_history(path: Path, seed: int) -> None:
    """Run batches with regions that fail, restarts, and savepoints; compare with a dict."""
    history = random.Random(seed)  # noqa: S311
    published: dict[str, tuple[int, dict[str, int]]] = {}
    model: dict[str, dict[str, int]] = {region: {} for region in REGIONS}
    seen = dict.fromkeys(REGIONS, 0)
    local = totals(path / "0", published)
    folders = 0
    try:
        for _ in range(history.randrange(5, 25)):
            FAILING.clear()
            if history.random() < 0.4:
                FAILING.update(history.sample(REGIONS, history.randrange(1, 3)))
            rows = rows_of(history)
            for region, device, amount, drop in rows:
                if drop:
                    model[region].pop(device, None)
                else:
                    model[region][device] = model[region].get(device, 0) + amount
                seen[region] += 1
            local.run_batch([[table_of(rows)]])
            for region in set(REGIONS) - set(local.latest.failed):
                if model[region]:
                    assert published[region] == (seen[region], model[region]), (seed, region)
            if history.random() < 0.15:
                local.close()
                local = totals(path / str(folders), published)
            elif history.random() < 0.07:
                FAILING.clear()
                local.stop_with_savepoint(path / f"save-{folders}")
                folders += 1
                origin = hf.restore(path / f"save-{folders - 1}")
                local = totals(path / str(folders), published, restore=origin)
        FAILING.clear()
        local.finish()
    finally:
        FAILING.clear()
        local.close()
    for region in REGIONS:
        if model[region]:
            assert published[region] == (seen[region], model[region]), (seed, region)


def test_damage_in_a_table_is_found_and_its_files_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("r0", f"device {number}", number, False) for number in range(500)]
    with totals(tmp_path, {}) as local:
        for _ in range(12):  # there is a run
            local.run_batch([[table_of(rows)]])
        newest = local.latest
    assert main(["verify", str(tmp_path)]) == 0
    assert main(["show", str(tmp_path), "--details"]) == 0
    assert "totals" in capsys.readouterr().out
    refs = [
        piece.ref
        for operator in newest.regions["r0"].operators
        for state in operator.states
        for piece in state.pieces
    ]
    file = tmp_path / "segments" / refs[0].file
    content = bytearray(file.read_bytes())
    content[refs[0].offset + refs[0].length // 2] ^= 1
    file.write_bytes(content)
    assert main(["verify", str(tmp_path)]) == 1
    assert "store totals" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(6))
def test_tables_have_the_rows_of_a_dict_whatever_fails(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", new_seeds(300))
def test_tables_have_the_rows_of_a_dict_in_many_histories(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)
