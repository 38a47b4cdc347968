"""Maps by key: entries are where the rows of their keys come, in any layout (SEMANTICS R73)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.regions.base.routing import instance_of, key_name, route_by
from holdfast.regions.base.saved import SavedState
from holdfast.regions.state.kinds.map import MapState, divide_map
from holdfast.regions.state.registry import StateRegistry

REGIONS = ["r0", "r1"]
ROWS = pa.schema([("region", pa.string()), ("id", pa.int64()), ("user", pa.string())])
COUNTED = pa.schema([*ROWS, ("seen", pa.int64())])


class CountByUser(hf.Operator):
    """Adds how many rows of the user came so far."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.seen = ctx.state.map("seen")

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        counts = []
        for user in batch.column("user").to_pylist():
            self.seen[user] = self.seen.get(user, 0) + 1
            counts.append(self.seen[user])
        columns = [*batch.columns, pa.array(counts, pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, schema=COUNTED)


class CountById(CountByUser):
    """Counts by something else than what rows are routed by."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for row in batch.column("id").to_pylist():
            self.seen[row] = 1
        return iter(())


def rows_of(batch: int) -> list[tuple[str, int, str | None]]:
    users = [f"user {number}" for number in range(20)] + ["", "null", None, '"', "ü"]
    return [(region, batch, user) for user in users for region in REGIONS]


def partitions(rows: list[tuple[str, int, str | None]]) -> list[list[pa.RecordBatch]]:
    columns: Any = list(zip(*rows, strict=True))
    return [[pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=ROWS)]]


def counting(
    path: Path,
    parallelism: int,
    checkpoint: str,
    operator: hf.Operator | None = None,
    **options: Any,
) -> hf.LocalQuery:
    route = options.pop("route_by", "user")
    return (
        hf.regional(region_by="region")
        .apply(
            operator or CountByUser(),
            schema=COUNTED,
            name="count",
            parallelism=parallelism,
            route_by=route,
        )
        .write_parquet(path / "out")
        .open_local(path / checkpoint, **options)
    )


def test_entries_follow_the_rows_of_their_keys_over_any_number_of_instances(tmp_path: Path) -> None:
    origin, layouts = None, [1, 3, 2, 5, 1]
    for number, parallelism in enumerate(layouts):
        with counting(tmp_path, parallelism, f"ckpt-{number}", restore=origin) as query:
            query.run_batch(partitions(rows_of(number)))
        origin = hf.restore(tmp_path / f"ckpt-{number}")
    seen: dict[Any, list[int]] = {}
    for row in pq.read_table(tmp_path / "out").to_pylist():
        seen.setdefault((row["region"], row["user"]), []).append(row["seen"])
    assert len(seen) == 50
    assert all(sorted(counts) == [1, 2, 3, 4, 5] for counts in seen.values())


def test_a_restart_goes_on_with_the_entries(tmp_path: Path) -> None:
    for number in range(2):
        with counting(tmp_path, 2, "ckpt") as query:
            query.run_batch(partitions(rows_of(number)))
    counts = pq.read_table(tmp_path / "out")["seen"].to_pylist()
    assert sorted(counts) == [1] * 50 + [2] * 50


def test_a_key_whose_rows_go_elsewhere_is_refused_by_name(tmp_path: Path) -> None:
    refused = pytest.raises(hf.RegionalQueryError, match="state 'seen' of operator 'count' in ")
    with counting(tmp_path, 3, "ckpt", CountById()) as query, refused:
        query.run_batch(partitions(rows_of(0)))


def test_other_columns_to_go_by_are_refused_by_name(tmp_path: Path) -> None:
    with counting(tmp_path, 2, "ckpt") as query:
        query.run_batch(partitions(rows_of(0)))
    origin = hf.restore(tmp_path / "ckpt")
    with pytest.raises(
        hf.LayoutChangedError, match=r"map state 'seen' are values of 'user', and .* by 'id' now"
    ):
        counting(tmp_path, 3, "next", restore=origin, route_by="id")


VALUES = {
    pa.string(): st.text(max_size=5) | st.none() | st.sampled_from(["null", '"x"', ""]),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.none(),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans() | st.none(),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), instances=st.integers(2, 6))
def test_a_key_is_at_the_instance_to_which_the_route_sends_its_row(
    data: st.DataObject, instances: int
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    values = [data.draw(VALUES[kind]) for kind in kinds]
    columns = {
        f"c{n}": pa.array([v], k) for n, (v, k) in enumerate(zip(values, kinds, strict=True))
    }
    parts = route_by(list(columns))(pa.record_batch(columns), instances)
    (there,) = [number for number, part in enumerate(parts) if part is not None]
    key: Any = values[0] if len(values) == 1 else tuple(values)
    assert instance_of(key_name(key), instances) == there
    MapState[int](instance=there, parallelism=instances)[key] = 1
    with pytest.raises(hf.StateError, match="do not come to instance"):
        MapState[int](instance=(there + 1) % instances, parallelism=instances).get(key)


def test_a_map_is_a_dict() -> None:
    state = StateRegistry(np, owner="test").map("m")
    state["a"] = 1
    state[np.int64(3)] = 2
    state.update({("a", None): [3]})
    state.setdefault(True, {})["x"] = b"y"
    assert dict(state) == {"a": 1, 3: 2, ("a", None): [3], True: {"x": b"y"}}
    assert [type(key) for key in state] == [str, int, tuple, bool]
    assert ("a" in state, "b" in state, state.get("b"), len(state)) == (True, False, None, 4)
    assert state.pop("a") == 1
    del state[3]
    with pytest.raises(KeyError):
        state["a"]


@pytest.mark.parametrize(
    "key",
    [1.5, b"x", ("a", 1.5), np.float64(1), frozenset(), np.datetime64(1, "ns"), (1, 2.0), 2.0],
)
def test_what_is_no_key_is_refused_by_name(key: Any) -> None:
    state = StateRegistry(np, owner="test").map("m")
    # Equal keys are there.
    state[2] = state[1, 2] = 1
    for call in (state.__getitem__, state.__delitem__, partial(state.__setitem__, value=1)):
        with pytest.raises(hf.StateError, match=r"state 'm' of test: .* is no key of a map"):
            call(key)
    assert list(state) == [2, (1, 2)]


def test_a_value_that_cannot_be_kept_is_named() -> None:
    registry = StateRegistry(np, owner="test")
    registry.map("m")["a"] = object()
    with pytest.raises(hf.StateError, match="state 'm' of test: a value of type object"):
        registry.freeze(lambda state, refs: [])


def test_the_bytes_of_a_map_are_these() -> None:
    registry = StateRegistry(np)
    state = registry.map("m")
    state["a"], state[3], state[True], state[None] = 1.5, [None], b"\0", {"$": 1}
    state["a", 3] = float("inf")
    (frozen,) = registry.freeze(lambda state, refs: [])
    text = (
        b'[["a",1.5],[3,[null]],[true,{"$":["bytes","AA=="]}],[null,{"$":["dict",{"$":1}]}],'
        b'[["a",3],{"$":["float","inf"]}]]'
    )
    assert (frozen.kind, frozen.dtype, frozen.shape) == ("value", "|S1", (len(text),))
    assert bytes(frozen.data) == text
    assert dict(StateRegistry(np, [frozen]).map("m")) == dict(state)
    divided = divide_map([frozen.data], 3)
    states = [SavedState("m", "value", "|S1", (len(part),), memoryview(part)) for part in divided]
    keys = [list(StateRegistry(np, [state]).map("m")) for state in states]
    # CRC-32 of 'a', '3', 'null', 'true' and '["a",3]', modulo 3.
    assert keys == [["a"], [3, None], [True, ("a", 3)]]


@pytest.mark.parametrize(("first", "second"), [("value", "map"), ("map", "value")])
def test_a_map_and_a_value_are_not_taken_for_each_other(first: str, second: str) -> None:
    registry = StateRegistry(np, owner="test")
    getattr(registry, first)("m")
    saved = registry.freeze(lambda state, refs: [])
    with pytest.raises(
        hf.StateError, match=f"the checkpoint has a {first} there, the operator declares a {second}"
    ):
        getattr(StateRegistry(np, saved, owner="test"), second)("m")  # type: ignore[arg-type]
