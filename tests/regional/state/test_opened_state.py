"""`holdfast.open_state` reads the state of regional pipelines, which may run meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

import holdfast as hf
from holdfast._core import CheckpointMetadata
from support import commands
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import ROWS, partitions_of, rows_of

REGIONS = ["r1", "r2", "r3"]

#: The region that fails in the second batch, and does not take part in its checkpoint.
FAILED = "r2"

#: The first row has so many entries of a large map, and items of a large list.
MANY = 6_000

#: Items of an array in several chunks.
ITEMS = 200_000

Content = Mapping[str, list[Any]]


class Keeping(Hooked):
    """Keeps the ids of its rows in states of every kind."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        state = ctx.state
        self.region = ctx.region
        self.value = state.value("value", {"ids": []})
        self.raw = state.value("raw", b"")
        self.mixed = state.value("mixed")
        self.lasting = state.value("lasting", ttl="1 day")
        self.map, self.large_map = state.map("map"), state.map("large map")
        self.list, self.large_list = state.list("list"), state.list("large list")
        self.number = state.array("number", shape=(), dtype="float16")
        self.vector = state.array("vector", shape=int(self.region[1:]), dtype=">i4")
        self.matrix = state.array("matrix", shape=(2, 3))
        state.array("complex", shape=2, dtype="complex128")
        state.array("unlike", shape=2, dtype="int32" if self.region == "r1" else "int64")
        self.chunked = state.array("chunked", shape=ITEMS, dtype="uint8", chunk_bytes=1 << 16)
        self.table = state.table(
            "table",
            key={"region": pa.string(), "id": pa.int64()},
            value={"at": pa.timestamp("ms", "Europe/Zurich"), "sum": pa.decimal128(9, 2)},
        )
        self.expiring = state.table("expiring", key=pa.int64(), value=pa.string(), ttl="1 day")
        self.timers = state.timers("timers", key=pa.int64(), time="processing")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.before(batch)
        ids = batch["id"].to_pylist()
        for one in ids:
            self.map[one, str(one)] = one / 2
        if not self.large_list.items:
            self.large_map.update({f"key {at}": {"at": at} for at in range(MANY)})
            self.large_list.items += [f"item {at}" for at in range(MANY)]
        self.large_list.items += ids
        del self.large_list.items[: len(ids)]
        self.value.value["ids"] += ids
        self.list.items += ids
        self.raw.value = bytes([255, len(self.list)])
        self.mixed.value = b"raw" if self.region == "r1" else ids[-1]
        self.lasting.value = float("nan")
        self.number[...] = 0.5
        self.vector[:] = len(self.list)
        self.matrix[1] = ids[-1]
        self.chunked[-len(self.list) :] = 1
        times = [at(one) for one in ids]
        sums = [Decimal(one) for one in ids]
        self.table.upsert(
            pa.table({"region": ["inner"] * len(ids), "id": ids, "at": times, "sum": sums})
        )
        self.expiring.upsert(ids, [*map(str, ids)])
        self.timers.at(ids, times)
        yield batch


class Routed(hf.Operator):
    """Keeps rows in several instances."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.map, self.list = ctx.state.map("map"), ctx.state.list("list")
        self.by_key = ctx.state.table("by_key", key={"key": pa.int64()}, value={"id": pa.int64()})
        self.by_id = ctx.state.table("by_id", key={"id": pa.int64()}, value={"key": pa.int64()})

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.map.update(zip(batch["key"].to_pylist(), batch["id"].to_pylist(), strict=True))
        self.list.items += batch["key"].to_pylist()
        self.by_key.upsert(batch)
        self.by_id.upsert(batch)
        yield batch


def at(row_id: int) -> datetime:
    return datetime(2040, 1, 1, tzinfo=UTC) + timedelta(seconds=row_id)


def pipeline(path: Path, hooks: Hooks | None = None, **options: Any) -> hf.LocalQuery:
    chain = hf.regional(region_by="region").apply(Keeping(hooks), schema=ROWS, name="keep")
    routed = chain.apply(Routed(), schema=ROWS, name="route", parallelism=2, route_by="key")
    return routed.write_parquet(path / "out").open_local(path / "ckpt", **options)


def ids_of(region: str, *, batches: int = 2) -> list[int]:
    """The ids of the rows that a region has taken in."""
    taken = 1 if region == FAILED else batches
    return [one for n in range(taken) for of, one, _ in rows_of(n, REGIONS) if of == region]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The checkpoints of a pipeline that runs, after a batch without one region."""
    path, hooks = tmp_path_factory.mktemp("pipeline"), Hooks()
    hooks.fail_for(FAILED, range(1000, 2000))
    with pipeline(path, hooks, max_failure_ratio=0.5) as query:
        for number in range(2):
            query.run_batch(partitions_of(rows_of(number, REGIONS), 2), batch_id=number)
        regions = query.latest.regions
        assert [name for name, entry in regions.items() if entry.failed] == [FAILED]
        yield path / "ckpt"


def read(folder: Path, store: str, operator: str = "keep", **options: Any) -> pa.Table:
    with hf.open_state(folder, operator=operator, store=store, **options) as state:
        table = state.to_arrow()
        assert len(state) == len(table)
        return table


def of_regions(table: pa.Table) -> dict[str, Any]:
    return dict(zip(table["region"].to_pylist(), table["value"].to_pylist(), strict=True))


VALUES: dict[str, Any] = {
    "value": lambda ids: json.dumps({"ids": ids}, separators=(",", ":")),
    "raw": lambda ids: bytes([255, len(ids)]),
    "lasting": lambda ids: '{"$":["float","nan"]}',
    "number": lambda ids: 0.5,
    "matrix": lambda ids: [[0.0] * 3, [float(ids[-1])] * 3],
}


@pytest.mark.parametrize("store", VALUES)
def test_values_and_arrays_are_rows_of_regions(folder: Path, store: str) -> None:
    assert of_regions(read(folder, store)) == {one: VALUES[store](ids_of(one)) for one in REGIONS}


def test_arrays_of_regions_may_differ_in_length(folder: Path) -> None:
    table = read(folder, "vector")
    assert of_regions(table) == {
        one: [len(ids_of(one))] * length for length, one in enumerate(REGIONS, start=1)
    }
    items = table["value"].combine_chunks().flatten().to_numpy()
    assert (items.dtype, len(items)) == (np.int32, 6)


def test_an_array_of_several_chunks_is_whole(folder: Path) -> None:
    for region, items in of_regions(read(folder, "chunked")).items():
        ones = len(ids_of(region))
        assert items == [0] * (ITEMS - ones) + [1] * ones


def test_values_that_are_raw_bytes_in_some_regions_are_json(folder: Path) -> None:
    last = {one: str(ids_of(one)[-1]) for one in REGIONS}
    assert of_regions(read(folder, "mixed")) == last | {"r1": '{"$":["bytes","cmF3"]}'}


def test_maps_and_lists_are_rows_of_entries(folder: Path) -> None:
    ids = [(region, one) for region in REGIONS for one in ids_of(region)]
    of_map = read(folder, "map").to_pylist()
    assert [(row["region"], row["key"], row["value"]) for row in of_map] == [
        (region, f'[{one},"{one}"]', str(one / 2)) for region, one in ids
    ]
    of_list = read(folder, "list")
    assert of_list["value"].to_pylist() == [str(one) for _, one in ids]
    assert of_list["position"].to_pylist() == [
        n for one in REGIONS for n in range(len(ids_of(one)))
    ]


def test_large_maps_and_lists_have_the_rows_of_small_ones(folder: Path) -> None:
    of_map = read(folder, "large map")
    assert of_map["key"].to_pylist() == [f"key {at}" for at in range(MANY)] * 3
    assert of_map["value"].to_pylist() == [f'{{"at":{at}}}' for at in range(MANY)] * 3
    of_list = read(folder, "large list")
    items: list[Any] = []
    for region in REGIONS:
        filled = [f'"item {at}"' for at in range(MANY)] + [str(one) for one in ids_of(region)]
        items += filled[len(ids_of(region)) :]
    assert of_list["value"].to_pylist() == items
    assert of_list["position"].to_pylist() == [*range(MANY)] * 3


def test_tables_have_their_declared_columns(folder: Path) -> None:
    ids = [(region, one) for region in REGIONS for one in ids_of(region)]
    table = read(folder, "table")
    assert table.schema == pa.schema(
        {
            "region": pa.string(),
            "region_2": pa.string(),
            "id": pa.int64(),
            "at": pa.timestamp("ms", "Europe/Zurich"),
            "sum": pa.decimal128(9, 2),
        }
    )
    found = [tuple(row.values()) for row in table.to_pylist()]
    assert found == [(region, "inner", one, at(one), Decimal(one)) for region, one in ids]
    expiring = read(folder, "expiring").to_pylist()
    assert expiring == [{"region": of, "key": one, "value": str(one)} for of, one in ids]
    timers = read(folder, "timers").to_pylist()
    assert timers == [{"region": of, "time": at(one), "key": one, "set": True} for of, one in ids]


def test_instances_are_told_apart_where_their_keys_are_not(folder: Path) -> None:
    rows = [row for n in range(2) for row in rows_of(n, REGIONS) if row[1] in ids_of(row[0])]
    last = {(region, key): one for region, one, key in rows}
    for store, key in (("map", "key"), ("by_key", "key")):
        table = read(folder, store, "route")
        assert "instance" not in table.schema.names
        found = {
            (row["region"], int(row[key])): int([*row.values()][2]) for row in table.to_pylist()
        }
        assert (found, len(table)) == (last, len(last))
    by_id = read(folder, "by_id", "route")
    assert by_id.schema.names == ["region", "instance", "id", "key"]
    assert {(row["region"], row["id"], row["key"]) for row in by_id.to_pylist()} == {*rows}
    assert set(by_id["instance"].to_pylist()) == {0, 1}
    of_list = read(folder, "list", "route")
    assert of_list.schema.names == ["region", "instance", "position", "value"]
    assert sorted(of_list["value"].to_pylist()) == sorted(str(key) for _, _, key in rows)


def test_an_older_checkpoint_has_its_own_state(folder: Path) -> None:
    ids = {one: VALUES["value"](ids_of(one, batches=1)) for one in REGIONS}
    before, _ = CheckpointMetadata.list(folder / "metadata")[-2:]
    assert of_regions(read(folder, "value", batch=before)) == ids


def test_a_region_is_scanned_alone(folder: Path) -> None:
    with hf.open_state(folder, operator="keep", store="list") as state:
        assert state.key_names == ["region", "position"]
        assert (
            state.scan({"region": "r3"})
            .read_all()
            .equals(state.to_arrow().filter(pa.compute.field("region") == "r3"))
        )
        assert len(state.scan({"region": "none"}).read_all()) == 0


def test_duckdb_and_polars_read_it(folder: Path) -> None:
    with hf.open_state(folder, operator="keep", store="matrix") as state:
        found = duckdb.sql("select region, value[2][1] from state order by 1").fetchall()
        assert found == [(one, ids_of(one)[-1]) for one in REGIONS]
        assert polars.DataFrame(state)["value"].to_list() == state.to_arrow()["value"].to_pylist()
    with hf.open_state(folder, operator="keep", store="map") as state:
        (count,) = duckdb.sql("select count(*) from state where key->>1 = '1040'").fetchall()
        assert count == (1,)


def test_the_command_prints_the_rows_of_an_operator(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("state", folder, "--operator", "keep", "--store", "list", "--json")
    status, lines, said = commands.run(capsys, *arguments)
    assert (status, len(lines)) == (0, 25)
    assert json.loads(lines[0]) == {"region": "r1", "position": 0, "value": "0"}
    assert said.startswith("holdfast: state of checkpoint ")
    arguments = ("diff", folder, "--operator", "keep", "--store", "list")
    newest = CheckpointMetadata.list(folder / "metadata")[-1]
    status, _, said = commands.run(capsys, *arguments, newest, newest)
    assert status == 1
    assert "this state cannot be compared: use `scan`" in said


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, ValueError, r"operator None: expected one of \['keep', 'route'\]"),
        ({"operator": 0}, ValueError, r"operator '0': expected one of \['keep', 'route'\]"),
        ({"operator": "route"}, ValueError, r"store None: expected one of \['by_id', 'by_key'"),
        ({"operator": "keep", "store": "expiring.expiry"}, ValueError, "expected one of"),
        ({"tag": "friday"}, ValueError, "only queries have tags"),
        ({"batch": 77}, FileNotFoundError, "expected checkpoint 77, found"),
        ({"operator": "keep", "store": "complex"}, NotImplementedError, "for items of complex128"),
        ({"operator": "keep", "store": "unlike"}, NotImplementedError, "region 'r1' and an array"),
        ({"filesystem": LocalFileSystem()}, NotImplementedError, "a mounted file system yet"),
    ],
)
def test_what_cannot_be_opened_is_refused(
    folder: Path, given: Mapping[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        hf.open_state(folder, **given)


def test_operations_of_queries_are_refused(folder: Path) -> None:
    with hf.open_state(folder, operator="keep", store="list") as state:
        with pytest.raises(NotImplementedError, match="looked up by keys: use `scan`"):
            state.get({"region": ["r1"], "position": [0]})
        with pytest.raises(NotImplementedError, match="watched: use `scan`"):
            state.watch()


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="a streaming query or a regional pipeline"):
        hf.open_state(tmp_path)


def test_a_checkpoint_that_is_deleted_meanwhile_is_named(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    with hf.open_state(copy, operator="keep", store="table") as state:
        shutil.rmtree(copy / "segments")
        with pytest.raises(FileNotFoundError) as damage:
            state.to_arrow()
        assert "retains" not in str(damage.value)
        shutil.rmtree(copy / "metadata")
        said = f"the pipeline no longer retains checkpoint {state.batch_id}: open a newer one"
        with pytest.raises(FileNotFoundError, match=said):
            state.to_arrow()


class Sharing(hf.Operator):
    """Keeps the states that new regions begin with."""

    def open(self, ctx: hf.OperatorContext) -> None:
        self.all = ctx.state.union("all")
        self.rule = ctx.state.broadcast("rule", {"limit": 1})

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.all.items += batch["id"].to_pylist()
        yield batch


def test_shared_states_and_savepoints_are_read(tmp_path: Path) -> None:
    chain = hf.regional(region_by="region").apply(Sharing(), schema=ROWS)
    writer = chain.write_parquet(tmp_path / "out")
    with writer.open_local(tmp_path / "ckpt", max_consecutive_failures=0) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 1))
        query.stop_with_savepoint(tmp_path / "savepoint")
    for name in ("ckpt", "savepoint"):
        found = read(tmp_path / name, "rule", "Sharing")
        assert of_regions(found) == dict.fromkeys(REGIONS, '{"limit":1}')
        found = read(tmp_path / name, "all", "Sharing")
        ids = [str(one) for region in REGIONS for one in ids_of(region, batches=1)]
        assert found["value"].to_pylist() == ids


def test_a_query_is_opened_without_the_modules_of_pipelines(tmp_path: Path) -> None:
    program = (
        "import sys, holdfast\n"
        "try:\n    holdfast.open_state(sys.argv[1])\n"
        "except FileNotFoundError:\n    print(*sys.modules)\n"
    )
    (tmp_path / "metadata").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "holdfast.reading.store_state" in loaded
    assert [name for name in loaded if name.startswith("holdfast.regions.state")] == []
