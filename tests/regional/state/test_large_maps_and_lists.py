"""Large maps and lists: dict and list for the operator, tables of what changed for checkpoints."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast._core import read_table
from holdfast.regions.base.saved import SavedState, StateError
from holdfast.regions.state.kinds.encoding import decode_value
from holdfast.regions.state.kinds.kind import StateOptions
from holdfast.regions.state.kinds.restoring import small_state
from holdfast.regions.state.registry import StateRegistry
from support.regional.seeds import new_seeds
from support.regional.table_world import OWNERS
from support.regional.table_world import World as Tables


class World(Tables):
    """Maps and lists of one operator over checkpoints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.registry = self.begin()

    def open(self) -> StateRegistry:
        """Begin another attempt with the states of the checkpoint."""
        self.registry = self.begin()
        return self.registry

    def of_any_size(self) -> StateRegistry:
        """Begin another attempt: maps and lists of any size are tables."""
        self.options = StateOptions(document_bytes=0)
        return self.open()

    def go_on(self) -> int:
        """Complete the attempt, and begin another one; return the bytes that it wrote."""
        before = self.manager.stats().physical_bytes
        self.complete(self.registry)
        written = self.manager.stats().physical_bytes - before
        self.begin(kept=self.registry)
        return written

    @property
    def kinds(self) -> list[str]:
        return [state.kind for state in self.saved]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.manager.close()


def test_a_large_map_writes_the_entries_that_changed(world: World) -> None:
    table = world.registry.map("m")
    table.update({f"key {number}": number for number in range(50_000)})
    assert world.go_on() > 200_000
    for number in range(4):
        for key in range(100):
            table[f"key {key * 7}"] += 1
        table[f"new {number}"] = -1
        del table[f"key {40_000 + number}"]
        assert world.go_on() < 10_000
        assert world.kinds == ["table"]
    found = world.open().map("m")
    assert list(found.items()) == list(table.items())
    assert found["key 7"] == 11
    assert list(found)[-1] == "new 3"


def test_a_large_list_writes_the_items_that_came(world: World) -> None:
    items = world.registry.list("l")
    items.items.extend(range(100_000))
    assert world.go_on() > 200_000
    for number in range(4):
        items.items.extend(range(number * 1000, number * 1000 + 1000))
        del items.items[:500]
        items.items[number] = "changed"
        assert world.go_on() < 20_000
        assert world.kinds == ["table"]
    assert world.open().list("l").items == items.items
    assert len(items) == 102_000


def test_small_ones_are_texts_as_before(world: World) -> None:
    world.registry.map("m").update({"a": 1, 2: [1.5]})
    world.registry.list("l").append(b"x")
    world.go_on()
    assert world.kinds == ["list", "value"]


def test_values_that_change_in_place_are_found(world: World) -> None:
    table, items = world.registry.map("m"), world.registry.list("l")
    mine = {"n": [0]}
    table.update({number: {"n": [number]} for number in range(5000)})
    table["mine"] = mine
    items.items.extend([number] for number in range(20_000))
    world.go_on()
    kept = table[17]
    world.go_on()
    kept["n"].append("later")
    mine["n"].append("mine")
    items.items[5].append("item")
    next(iter(table.values()))["n"].append("first")
    assert world.go_on() < 5_000
    again = world.open()
    found, found_items = again.map("m"), again.list("l")
    assert found[17] == {"n": [17, "later"]}
    assert found["mine"] == {"n": [0, "mine"]}
    assert found[0] == {"n": [0, "first"]}
    assert found_items.items[5] == [5, "item"]
    found[3]["n"].append("restored")
    found_items.items[3].append("restored")
    world.go_on()
    again = world.open()
    assert again.map("m")[3] == {"n": [3, "restored"]}
    assert again.list("l").items[3] == [3, "restored"]


def test_keys_that_are_equal_are_one_entry(world: World) -> None:
    table = world.of_any_size().map("m")
    keys = [1, "1", (1, "a"), None, "null", (True, None), "\ud800", ""]
    table.update({key: str(key) for key in keys})
    world.go_on()
    table = world.open().map("m")
    assert list(table) == keys
    del table[1]
    table[True] = "true"
    del table[(1, None)]
    world.go_on()
    table = world.open().map("m")
    assert list(table.items())[-1] == (True, "true")
    assert list(table)[-1] is True
    assert len(table) == len(keys) - 1
    table[1] = "one"
    table[(1, "a")] = [1]
    table[(True, "a")] = 2
    world.go_on()
    found = world.open().map("m")
    assert [list(map(type, key)) for key in found if isinstance(key, tuple)] == [[int, str]]
    assert list(found)[-1] is True
    assert (found[True], found[1, "a"]) == ("one", 2)
    assert world.go_on() < 1000


def test_numbers_of_numpy_name_the_entries_of_equal_keys(world: World) -> None:
    world.of_any_size().map("m").update({1: 1, (2, "a"): 1, 3: [1]})
    world.go_on()
    table = world.open().map("m")
    table[np.int64(1)] += 1
    table[np.int64(2), "a"] += 1
    table[np.int64(3)].append(2)
    with pytest.raises(StateError, match=r"1\.0 is no key of a map"):
        table[1.0] = 5
    world.go_on()
    table = world.open().map("m")
    assert dict(table) == {1: 2, (2, "a"): 2, 3: [1, 2]}
    del table[np.int64(1)]
    world.go_on()
    assert dict(world.open().map("m")) == {(2, "a"): 2, 3: [1, 2]}


def test_a_value_that_cannot_be_kept_is_named(world: World) -> None:
    table = world.of_any_size().map("m")
    table["a"] = 1
    world.go_on()
    table["a"] = object()
    with pytest.raises(StateError, match=r"state 'm' of operator 'count': a value of type object"):
        world.go_on()


def test_another_kind_of_state_is_made_of_a_large_one(world: World) -> None:
    world.of_any_size().map("m").update({"a": 1, "b": 2})
    world.go_on()
    with pytest.raises(StateError, match="the checkpoint has a map there"):
        world.open().list("m")
    items = world.open().list("m", evolve=lambda found: sorted(map(list, found.items())))
    assert items.items == [["a", 1], ["b", 2]]
    world.go_on()
    assert world.open().list("m").items == items.items


# --- histories ----------------------------------------------------------------------------------

REGIONS = ["r0", "r1", "r2"]
ROWS = pa.schema([("region", pa.string()), ("key", pa.int64()), ("what", pa.int64())])
FOUND = pa.schema([("region", pa.string()), ("rows", pa.int64()), ("content", pa.string())])

FAILING: set[str] = set()

LARGE = "x" * (64 << 10)


def change(sums: Any, log: list[Any], key: int, what: int) -> None:
    """Change a dict and a list."""
    actions: list[Callable[[], Any]] = [
        lambda: sums.__setitem__(key, what),
        lambda: sums.__setitem__(key, [what]),
        lambda: sums.__setitem__(key, {"a": what}),
        lambda: sums.pop(key, None),
        lambda: [one.append(what) for one in sums.values() if isinstance(one, list)],
        lambda: log.append(what),
        lambda: log.append([key]),
        lambda: log.__delitem__(slice(0, key % 3)),
        lambda: log and log.pop(),
        lambda: [one.append(what) for one in log if isinstance(one, list)],
        lambda: log and log.__setitem__(key % len(log), f"text {what}"),
        lambda: log.insert(key % (len(log) + 1), {"n": what}),
        lambda: log.reverse(),
        # It makes tables of them.
        lambda: sums.__setitem__(LARGE, LARGE),
        lambda: log.append(LARGE),
    ]
    actions[what % len(actions)]()


class Kept(hf.Operator):
    """Changes a map and a list, and puts all of both out."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.rows = ctx.state.value("rows", 0)
        self.sums = ctx.state.map("sums")
        self.log = ctx.state.list("log")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        for _, key, what in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            change(self.sums, self.log.items, key, what)
        if self.region in FAILING:
            raise RuntimeError("the region fails")
        self.rows.value += batch.num_rows
        content = json.dumps([list(self.sums.items()), self.log.items])
        yield pa.table([[self.region], [self.rows.value], [content]], schema=FOUND)


def run_history(path: Path, seed: int) -> None:
    """Run batches with regions that fail, restarts, and savepoints; compare with dict and list."""
    history = random.Random(seed)  # noqa: S311
    published: dict[str, tuple[int, str]] = {}

    def opened(folder: int, **options: Any) -> hf.LocalQuery:
        def publish(rows: pa.Table, checkpoint: int) -> None:
            for row in rows.to_pylist():
                published[row["region"]] = row["rows"], row["content"]

        return (
            hf.regional(region_by="region")
            .apply(Kept(), schema=FOUND, name="kept")
            .foreach_batch(publish)
            .open_local(
                path / str(folder),
                max_failure_ratio=0.8,
                max_consecutive_failures=1000,
                num_retained=2,
                **options,
            )
        )

    models: dict[str, tuple[dict[int, Any], list[Any]]] = {name: ({}, []) for name in REGIONS}
    rows = dict.fromkeys(REGIONS, 0)
    folder = 0
    local = opened(folder)
    try:
        for _ in range(history.randrange(5, 20)):
            FAILING.clear()
            if history.random() < 0.3:
                FAILING.update(history.sample(REGIONS, history.randrange(1, 3)))
            given = [
                (region, history.randrange(12), history.randrange(1000))
                for region in REGIONS
                for _ in range(history.randrange(1, 12))
            ]
            for region, key, what in given:
                change(*models[region], key, what)
                rows[region] += 1
            columns = [
                pa.array(c, f.type) for c, f in zip(zip(*given, strict=True), ROWS, strict=True)
            ]
            local.run_batch([[pa.table(columns, schema=ROWS)]])
            for region in set(REGIONS) - set(local.latest.failed):
                sums, log = models[region]
                expected = rows[region], json.dumps([list(sums.items()), log])
                assert published[region] == expected, (seed, region)
            if history.random() < 0.2:
                local.close()
                local = opened(folder)
            elif history.random() < 0.1:
                FAILING.clear()
                local.stop_with_savepoint(path / f"save-{folder}")
                folder += 1
                local = opened(folder, restore=hf.restore(path / f"save-{folder - 1}"))
        FAILING.clear()
        local.finish()
    finally:
        FAILING.clear()
        local.close()


@pytest.mark.parametrize("seed", range(8))
def test_maps_and_lists_are_dict_and_list_whatever_fails(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", new_seeds(300))
def test_maps_and_lists_are_dict_and_list_in_many_histories(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


class ByUser(hf.Operator):
    """Counts rows by user in a map, and keeps all ids in a list.

    Both are large with all 40 users, and the map also with half of them.
    """

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.seen = ctx.state.map("seen")
        self.ids = ctx.state.list("ids")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        for row in batch.to_pylist():
            seen, _ = self.seen.get(row["key"], (0, ""))
            self.seen[row["key"]] = [seen + 1, LARGE[:4000]]
            self.ids.append(f"{row['what']} {LARGE[:2000]}")
            yield pa.table([["r"], [seen + 1], [str(len(self.ids))]], schema=FOUND)


def test_large_maps_and_lists_are_divided(tmp_path: Path) -> None:
    published: list[int] = []

    def opened(number: int, parallelism: int, **options: Any) -> hf.LocalQuery:
        route = {"parallelism": parallelism, "route_by": "key"} if parallelism > 1 else {}
        return (
            hf.regional(region_by="region")
            .apply(ByUser(), schema=FOUND, name="by_user", **route)
            .foreach_batch(lambda rows, checkpoint: published.extend(rows["rows"].to_pylist()))
            .open_local(tmp_path / str(number), **options)
        )

    batch = pa.table([["r"] * 40, [*range(40)], [*range(40)]], schema=ROWS)
    for number, parallelism in enumerate((1, 3, 2, 1)):
        origin = {"restore": hf.restore(tmp_path / str(number - 1))} if number else {}
        with opened(number, parallelism, **origin) as local:
            local.run_batch([[batch]])
        assert sorted(published) == [number + 1] * 40
        published.clear()


FIXTURE = Path(__file__).parents[2] / "fixtures" / "large-states-v1"


def test_large_states_of_version_1_are_read() -> None:
    states = json.loads((FIXTURE / "states.json").read_text())
    found = {}
    for name, text in states.items():
        data = json.dumps(text).encode()
        saved = SavedState(name, "table", "", (), memoryview(data))
        owner = OWNERS.state("count", name)
        found[name] = decode_value(small_state(saved, partial(read_table, FIXTURE, owner)))
    expected = {"b": [1, b"\0"], (True, "a"): None, 7: 2.5}
    assert list(found["m"].items()) == list(expected.items())
    assert found["l"] == ["x", {"n": 1}]


def test_a_large_state_of_a_newer_version_is_refused() -> None:
    text = json.loads((FIXTURE / "states.json").read_text())["m"] | {"version": 2}
    saved = SavedState("m", "table", "", (), memoryview(json.dumps(text).encode()))
    with pytest.raises(StateError, match="a table of version 2 was written by a newer Holdfast"):
        StateRegistry(np, [saved]).map("m")
