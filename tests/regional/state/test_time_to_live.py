"""Tables whose rows expire: those of a dict that knows the time, and none for ever on disk."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.regions.base.saved import SavedState, StateError
from holdfast.regions.state.kinds.value import ValueState
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.tables.expiring import LOOKED_AT
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_columns
from holdfast.regions.state.tables.table import TableState
from holdfast.regions.state.tables.times import AttemptTimes
from support.regional.seeds import new_seeds
from support.regional.table_world import World
from support.regional.timed import BEGIN

TTL = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
US = timedelta(microseconds=1)
TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.manager.close()


def by_attempt(registry: StateRegistry, **options: Any) -> TableState:
    """A table whose rows live for an hour after the attempt that set them."""
    options = {"key": pa.int64(), "value": pa.int64(), "ttl": TTL, **options}
    return registry.table("t", **options)


def by_column(registry: StateRegistry, **options: Any) -> TableState:
    """A table whose rows live until the watermark has passed their time by an hour."""
    value = {"value": pa.int64(), "time": pa.timestamp("us")}
    return by_attempt(registry, value=value, ttl_by="time", **options)


def at(world: World, minutes: float) -> AttemptTimes:
    """The time of the attempt, and the same as watermark."""
    now = BEGIN + minutes * MINUTE
    return AttemptTimes(now, now.replace(tzinfo=None))


def sizes(world: World) -> dict[str, int]:
    """Rows of the table and of its index in the checkpoint, expired or not."""
    return {state.name: json.loads(bytes(state.data))["keys"] for state in world.saved}


# --- one operator -------------------------------------------------------------------------------


def test_a_row_has_expired_once_its_life_is_over(world: World) -> None:
    registry = world.begin(at(world, 0))
    table = by_attempt(registry)
    table.upsert([1, 2, 3], [10, 20, None])
    world.complete(registry)
    for minutes, there in ((59.9, True), (60, False), (61, False)):
        registry = world.begin(at(world, minutes))
        table = by_attempt(registry)
        assert table.get([1, 9, 3])["value"].to_pylist() == [10 if there else None, None, None]
        assert table.contains([1, 9, 3]).to_pylist() == [there, False, there]
        assert (1 in table) is there
        rows = [row for batch in table.scan() for row in batch.to_pylist()]
        assert [tuple(row.values()) for row in rows] == [(1, 10), (2, 20), (3, None)][: 3 * there]
        assert table.delete([2, 9]).to_pylist() == [there, False]
        if not there:
            with pytest.raises(KeyError):
                table[1]
            with pytest.raises(KeyError):
                del table[1]
        else:
            assert table[1] == 10
    table[1] = 11
    assert table[1] == 11


def test_to_set_a_row_again_lets_it_live_on(world: World) -> None:
    for minutes in range(0, 300, 50):
        registry = world.begin(at(world, minutes))
        table = by_attempt(registry)
        assert table.contains([1, 2]).to_pylist() == [minutes > 0, minutes == 50]
        table.upsert([1], [minutes])
        if minutes == 0:
            table.upsert([2], [0])
        world.complete(registry)
    # It had one entry in the index all the time.
    assert sizes(world) == {"t": 1, "t.expiry": 1}


def test_rows_that_expired_leave_the_disk_some_with_each_commit(world: World) -> None:
    count = 3 * LOOKED_AT // 2
    registry = world.begin(at(world, 0))
    by_attempt(registry).upsert(np.arange(count), np.arange(count))
    world.complete(registry)
    left = []
    for _ in range(3):
        registry = world.begin(at(world, 90))
        table = by_attempt(registry)
        left.append(len(table))
        assert not list(table.scan())
        world.complete(registry)
    assert left == [count, count - LOOKED_AT, 0]
    assert sizes(world) == {"t": 0, "t.expiry": 0}


@pytest.mark.parametrize("place", ["key", "value"])
def test_the_life_of_a_row_may_count_from_a_column(world: World, place: str) -> None:
    columns = {"key": {"id": pa.int64()}, "value": {"value": pa.int64()}}
    columns[place] = {**columns[place], "time": pa.timestamp("ns")}
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "value": [1, 2, 3],
            "time": pa.array([BEGIN - MINUTE, BEGIN, BEGIN + MINUTE], pa.timestamp("us")),
        }
    )
    for minutes, ids in ((None, [1, 2, 3]), (58, [1, 2, 3]), (59, [2, 3]), (60, [3]), (61, [])):
        times = at(world, minutes or 0)
        registry = world.begin(times if minutes else replace(times, watermark=None))
        table = by_attempt(registry, **columns, ttl_by="time")
        if minutes is None:
            table.upsert(rows)
        assert [id for batch in table.scan() for id in batch["id"].to_pylist()] == ids
        assert table.contains(rows).to_pylist() == [id in ids for id in (1, 2, 3)]
        found = table.get(rows)["value"].to_pylist()
        assert found == [id if id in ids else None for id in (1, 2, 3)]
        world.complete(registry)
    assert sizes(world) == {"t": 0, "t.expiry": 0}


def test_a_row_without_a_time_does_not_expire(world: World) -> None:
    registry = world.begin(at(world, 0))
    by_column(registry).upsert(pa.table({"key": [1, 2], "value": [1, 2], "time": [None, None]}))
    world.complete(registry)
    registry = world.begin(at(world, 1000))
    table = by_column(registry)
    assert table.contains([1, 2]).to_pylist() == [True, True]
    table[1] = {"value": 5, "time": BEGIN.replace(tzinfo=None)}
    world.complete(registry)
    registry = world.begin(at(world, 1000))
    assert by_column(registry).contains([1, 2]).to_pylist() == [False, True]
    assert sizes(world) == {"t": 1, "t.expiry": 0}


def test_times_far_away_are_times(world: World) -> None:
    far = pa.array([-(2**63), 2**63 - 1], pa.int64()).cast(pa.timestamp("us"))
    for _ in range(2):
        registry = world.begin(AttemptTimes(BEGIN, datetime.max))
        table = by_column(registry, ttl=timedelta.max)
        table.upsert(pa.table({"key": [1, 2], "value": [1, 2], "time": far}))
        assert table.contains([1, 2]).to_pylist() == [False, True]
        world.complete(registry)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("place", ["key", "value"])
def test_times_that_microseconds_do_not_hold_are_far_away(
    world: World, unit: str, place: str
) -> None:
    columns = {"key": {"id": pa.int64()}, "value": {"value": pa.int64()}}
    columns[place] = {**columns[place], "time": pa.timestamp(unit)}
    least = 2**63 - 1 if unit in ("us", "ns") else 2**62
    far = pa.array([-least, least, None][: 3 if place == "value" else 2], pa.int64())
    ids = [1, 2, 3][: len(far)]
    rows = pa.table({"id": ids, "value": ids, "time": far.cast(pa.timestamp(unit))})
    for minutes in (0, 10):
        registry = world.begin(at(world, minutes))
        table = by_attempt(registry, **columns, ttl_by="time")
        if not minutes:
            table.upsert(rows)
        assert table.contains(rows).to_pylist() == [False, True, True][: len(ids)]
        assert table.get(rows)["value"].to_pylist() == [None, 2, 3][: len(ids)]
        world.complete(registry)
    assert sizes(world) == {"t": len(ids) - 1, "t.expiry": 1}


def test_another_ttl_counts_for_all_rows(world: World) -> None:
    registry = world.begin(at(world, 0))
    by_attempt(registry).upsert([1, 2], [1, 2])
    world.complete(registry)
    registry = world.begin(at(world, 90))
    table = by_attempt(registry, ttl="2 hours")
    assert table.contains([1]).to_pylist() == [True]
    world.complete(registry)
    registry = world.begin(at(world, 100))
    assert not list(by_attempt(registry, ttl="30 minutes").scan())
    world.complete(registry)
    registry = world.begin(at(world, 121))
    by_attempt(registry, ttl="30 minutes")
    world.complete(registry)
    assert sizes(world) == {"t": 0, "t.expiry": 0}


def without_ttl(registry: StateRegistry) -> TableState:
    return registry.table("t", key=pa.int64(), value=pa.int64())


@pytest.mark.parametrize(
    ("before", "after"),
    [(without_ttl, by_attempt), (by_attempt, without_ttl), (by_attempt, by_column)],
)
def test_a_table_stays_with_or_without_ttl(
    world: World,
    before: Callable[[StateRegistry], TableState],
    after: Callable[[StateRegistry], TableState],
) -> None:
    registry = world.begin(at(world, 0))
    before(registry)
    world.complete(registry)
    with pytest.raises(StateError, match=r"the checkpoint has a table of .* the operator declares"):
        after(world.begin(at(world, 0)))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ttl": 60}, "ttl=60 is not allowed"),
        (
            {"ttl": timedelta()},
            "ttl=datetime.timedelta.0. is not allowed: expected more than nothing",
        ),
        ({"ttl_by": "when"}, "expected the name of a timestamp column .*, and the table has no"),
        ({"ttl_by": "value"}, "expected the name of a timestamp column .*, and it is int64"),
        ({"ttl": None, "ttl_by": "value"}, "ttl_by='value' needs a ttl"),
        ({"value": {"$set": pa.int64()}}, r"has a column '\$set' of its own"),
    ],
)
def test_lives_that_rows_cannot_have(options: dict[str, Any], error: str) -> None:
    with pytest.raises(StateError, match=error):
        by_attempt(StateRegistry(np), **options)


def test_the_index_has_a_name_of_its_own() -> None:
    registry = StateRegistry(np)
    by_attempt(registry)
    with pytest.raises(StateError, match=r"'t.expiry' is declared twice"):
        registry.value("t.expiry")


def test_texts_of_tables_in_checkpoints() -> None:
    columns = '{"key":[["key","int64"]],"value":[["n","int64"],["$set","timestamp[us, tz=UTC]"]]}'
    with_ttl = columns[:-1] + ',"ttl":"$set"}'
    for text in (columns, with_ttl):
        fixture = f'{{"version":1,"commit":"c","keys":3,{text[1:]}'.encode()
        assert FrozenTable("t", text, "c", (), 3).text == fixture
        assert saved_columns(memoryview(fixture)) == text
    newer = json.dumps({"version": 2}).encode()
    with pytest.raises(StateError, match="written by a newer Holdfast"):
        saved_columns(memoryview(newer))
    saved = SavedState("t", "table", "", (len(fixture),), memoryview(fixture))
    registry = StateRegistry(np, [saved])
    registry.table("t", key=pa.int64(), value={"n": pa.int64()}, ttl=TTL)


# --- values -------------------------------------------------------------------------------------


def value_of(registry: StateRegistry, ttl: object = TTL, **more: Any) -> ValueState[Any]:
    return registry.value("v", {"n": 0}, ttl=ttl, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", [None, "watermark"])
@pytest.mark.parametrize("seed", range(8))
def test_a_value_is_its_default_again_once_its_life_is_over(
    world: World, seed: int, by: str | None
) -> None:
    chance = random.Random(seed)  # noqa: S311
    model: tuple[dict[str, int], datetime | None] = {"n": 0}, None
    minutes = 0
    for _ in range(60):
        minutes += chance.choice([0, 10, 59, 60])
        now = BEGIN + minutes * MINUTE
        registry = world.begin(at(world, minutes))
        state = value_of(registry, ttl_by=by)
        content, since = model
        if over(since, now):
            content, since = {"n": 0}, None
        assert state.value == content
        content = dict(content)
        match chance.randrange(4):
            case 0:
                content["n"] += 1
                state.value["n"] += 1
                since = now
            case 1:
                state.value = dict(content)  # the same again
                since = now
            case 2:
                state.value["n"] += 0
        if chance.random() < 0.7:
            world.complete(registry)
            model = content, since


def test_a_value_expires_in_an_instance_that_goes_on(world: World) -> None:
    registry = world.begin(at(world, 0))
    state = value_of(registry)
    state.value["n"] = 5
    for minutes, found in ((0, 5), (59, 5), (60, 0), (119, 1), (120, 0)):
        registry.begin(lambda *_: pytest.fail("there is no table"), at(world, minutes))
        assert state.value == {"n": found}
        if minutes == 60:
            state.value["n"] += 1
        registry.freeze(lambda name, refs: [])


def test_a_value_may_get_and_lose_a_life(world: World) -> None:
    registry = world.begin(at(world, 0))
    registry.value("v", {"n": 0}).value["n"] = 7
    world.complete(registry)
    for minutes, ttl, found in ((100, TTL, 7), (159, TTL, 7), (170, "2 hours", 7), (219, TTL, 0)):
        registry = world.begin(at(world, minutes))
        assert value_of(registry, ttl).value == {"n": found}
        if minutes < 219:
            world.complete(registry)
    registry = world.begin(at(world, 219))
    assert registry.value("v", None).value == {"n": 7}


def test_values_of_checkpoints_stay_readable(world: World) -> None:
    registry = world.begin(at(world, 0))
    state = registry.value("v", b"", ttl="1 hour")
    state.value = b"ab"
    (saved,) = registry.freeze(lambda name, refs: [])
    assert isinstance(saved, SavedState)
    fixture = b'{"version":1,"set":1767225600000000,"value":{"$":["bytes","YWI="]}}'
    assert (saved.dtype, bytes(saved.data)) == ("|S2", fixture)
    registry = world.begin(at(world, 0))
    registry.value("v", b"", ttl="1 hour", ttl_by="watermark").value = b"ab"
    (by_watermark,) = registry.freeze(lambda name, refs: [])
    assert isinstance(by_watermark, SavedState)
    second = b'{"version":1,"set":1767225600000000,"value":{"$":["bytes","YWI="]},"by":"watermark"}'
    assert bytes(by_watermark.data) == second
    newer = fixture.replace(b'"version":1', b'"version":2')
    saved = replace(saved, data=memoryview(newer))
    for declare in (value_of, lambda registry: registry.value("v")):
        with pytest.raises(StateError, match="written by a newer Holdfast"):
            declare(StateRegistry(np, [saved]))


def test_a_value_follows_the_watermark_behind_the_attempt_that_changed_it(world: World) -> None:
    def begin(minutes: int | None) -> ValueState[Any]:
        watermark = None if minutes is None else BEGIN + minutes * MINUTE
        # The driver's clock counts for nothing.
        registry.begin(
            lambda *_: pytest.fail("there is no table"), AttemptTimes(BEGIN + 10 * TTL, watermark)
        )
        return state

    registry = world.begin(AttemptTimes(BEGIN))
    state = registry.value("v", {"n": 0}, ttl=TTL, ttl_by="watermark")
    for before, behind, found, add in (
        (None, None, 0, 1),  # no row with a time has come
        (None, 0, 1, 0),
        (0, 59, 1, 0),
        (59, 60, 1, 0),
        (60, 300, 0, 2),  # the rows of this attempt take the watermark on
        (300, 359, 2, 0),
        (359, 360, 2, 1),
        (360, 419, 3, 0),
        (420, 420, 0, 0),
    ):
        assert begin(before).value == {"n": found}, before
        if add:
            state.value["n"] += add
        begin(behind)
        registry.freeze(lambda name, refs: [])


def test_a_value_that_follows_the_watermark_needs_a_life() -> None:
    for options, error in (
        ({"ttl_by": "watermark"}, "needs a ttl"),
        ({"ttl": TTL, "ttl_by": "time"}, "expected 'watermark'"),
    ):
        with pytest.raises(StateError, match=error):
            StateRegistry(np).value("v", **options)


@pytest.mark.parametrize("ttl", [5, timedelta(), "soon"])
def test_lives_that_values_cannot_have(ttl: object) -> None:
    with pytest.raises(StateError, match="state 'v': ttl="):
        value_of(StateRegistry(np), ttl)


# --- many calls ---------------------------------------------------------------------------------


def run_model(world: World, seed: int, declare: Callable[..., TableState]) -> None:
    """Random calls in attempts of which some are abandoned, compared with a dict."""
    chance = random.Random(seed)  # noqa: S311
    model: dict[int, tuple[int, datetime | None]] = {}
    minutes = 0.0
    for _ in range(40):
        minutes += chance.choice([0, 1, 10, 59, 60, 61])
        now = BEGIN + minutes * MINUTE
        registry = world.begin(at(world, minutes))
        table = declare(registry)
        trial = dict(model)
        for _ in range(chance.randrange(12)):
            keys = [chance.randrange(20) for _ in range(chance.randrange(1, 6))]
            alive = {key: found for key, found in trial.items() if not over(found[1], now)}
            if (call := chance.randrange(4)) == 0:
                times = [chance.choice([None, now, now - TTL, now + TTL]) for _ in keys]
                values = [chance.randrange(100) for _ in keys]
                columns = [keys, values, pa.array(times, TIME).cast(pa.timestamp("us"))]
                table.upsert(pa.table(columns, names=["key", "value", "time"]))
                stamps = times if declare is by_column else [now] * len(keys)
                trial |= dict(zip(keys, zip(values, stamps, strict=True), strict=True))
            elif call == 1:
                found = [alive.pop(key, None) is not None for key in keys]
                assert table.delete(keys).to_pylist() == found
                trial = {key: row for key, row in trial.items() if key not in keys}
            elif call == 2:
                assert table.contains(keys).to_pylist() == [key in alive for key in keys]
                found = [alive[key][0] if key in alive else None for key in keys]
                assert table.get(keys)["value"].to_pylist() == found
            else:
                rows = [row for batch in table.scan() for row in batch.to_pylist()]
                assert {row["key"]: row["value"] for row in rows} == {
                    key: value for key, (value, _) in alive.items()
                }
                assert len(table) >= len(rows)
        if chance.random() < 0.7:
            world.complete(registry)
            model = trial
        else:
            registry.close()
    for _ in range(2):  # the first one moves entries of the index on
        registry = world.begin(at(world, minutes + 1000))
        declare(registry)
        world.complete(registry)
    endless = sum(time is None for _, time in model.values())
    assert sizes(world) == {"t": endless, "t.expiry": 0}


def over(since: datetime | None, now: datetime) -> bool:
    return since is not None and since + TTL <= now


@pytest.mark.parametrize("declare", [by_attempt, by_column])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_a_dict_that_knows_the_time(
    world: World, seed: int, declare: Callable[..., TableState]
) -> None:
    run_model(world, seed, declare)


@pytest.mark.full
@pytest.mark.parametrize("declare", [by_attempt, by_column])
@pytest.mark.parametrize("seed", new_seeds(300))
def test_rows_are_those_of_a_dict_in_many_histories(
    world: World, seed: int, declare: Callable[..., TableState]
) -> None:
    run_model(world, seed, declare)
