"""Values, lists and what else is no array: defaults, and whose they are (SEMANTICS R90)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.state.kinds.encoding import encode_value
from holdfast.regions.state.registry import StateRegistry
from support.regional.hooks import Hooks
from support.regional.pipelines import (
    COUNTED,
    Troubled,
    expected,
    output_of,
    partitions_of,
    rows_of,
)

REGIONS = ["r0", "r1", "r2"]


class CountsInDefault(Troubled):
    """Counts in a dict that every instance gives as the default of its state."""

    EMPTY: ClassVar[dict[str, Any]] = {"rows": 0, "keys": []}

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.seen = ctx.state.value("seen", self.EMPTY)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        seen, out = self.seen.value, []
        for region, row, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            seen["rows"] += 1
            seen["keys"].append(key)
            out.append((region, row, seen["rows"], seen["keys"].count(key)))
        self.before(batch)
        return pa.RecordBatch.from_pylist(
            [dict(zip(COUNTED.names, row, strict=True)) for row in out], schema=COUNTED
        )


def test_a_default_belongs_to_one_instance_and_one_attempt(tmp_path: Path, hooks: Hooks) -> None:
    tries = []

    def fail_twice(region: str, ids: Sequence[int]) -> None:
        if region == "r1" and len(tries) < 2:
            tries.append(region)
            raise RuntimeError("in trouble")

    batches = [rows_of(number, REGIONS) for number in range(3)]
    hooks.on_rows = fail_twice
    pipeline = hf.regional(region_by="region").apply(CountsInDefault(hooks), schema=COUNTED)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        for number, rows in enumerate(batches):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        query.finish()
    assert len(tries) == 2
    assert CountsInDefault.EMPTY == {"rows": 0, "keys": []}
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.parametrize("declare", [StateRegistry.value, StateRegistry.broadcast])
def test_a_default_is_not_changed_with_the_state(declare: Any) -> None:
    default = {"all": [1, 2]}
    state = declare(StateRegistry(np), "seen", default)
    state.value["all"].append(3)
    assert default == {"all": [1, 2]}
    assert declare(StateRegistry(np), "seen", default).value == default


# --- states that were replaced ------------------------------------------------------------------


class Rebinding(hf.Operator):
    """Keeps states in many places, and does something to one of them in its second batch."""

    region_safe = True

    def __init__(self, action: str) -> None:
        self.action = action

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx
        self.x = ctx.state.array("x", shape=(2, 3))
        self.other = ctx.state.array("other", shape=(2, 3))
        self.rows = ctx.state.array("rows", shape=6).reshape(2, 3)
        self.by_name = {"a": ctx.state.array("a", shape=2)}
        self.layers = [ctx.state.array(f"layer {n}", shape=2) for n in range(3)]
        self.model = SimpleNamespace(weights=ctx.state.array("weights", shape=2))
        self.slotted = Slotted(ctx.state.array("slotted", shape=2))
        self.zero = ctx.state.array("zero", shape=())
        self.count = ctx.state.value("count", 0)
        self.recent = ctx.state.list("recent")
        self.current = self.x
        ctx.state.array("unused", shape=2)

    def process(self, batch: pa.RecordBatch) -> None:
        if batch.column("id")[0].as_py() >= 1000:
            exec(self.action, {"self": self, "np": np, "Slotted": Slotted})  # noqa: S102


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def failure_after(action: str, path: Path) -> str:
    """Why the second batch failed, in which the action was done; empty if it did not."""
    pipeline = hf.regional(region_by="region").apply(Rebinding(action), schema=COUNTED, name="op")
    with pipeline.write_parquet(path / "out").open_local(path / "ckpt") as query:
        for number in range(2):
            rows = rows_of(number, ["r0", "r1"])
            if number:
                rows = [row for row in rows if row[0] == "r0"] + rows_of(0, ["r2", "r1"])
            query.run_batch(partitions_of(rows, 1), batch_id=number)
        return query.latest.regions["r0"].cause


@pytest.mark.parametrize(
    ("action", "place", "state"),
    [
        ("self.x = self.x + 1", "self.x", "array state 'x'"),
        ("self.current = self.current * 0.5", "self.current", "array state 'x'"),
        ("self.other = self.other * 2", "self.other", "array state 'other'"),
        ("self.x, self.other = self.other, self.x", "self.other", "array state 'other'"),
        ("self.rows = self.rows + 1", "self.rows", "array state 'rows'"),
        ("self.by_name['a'] = np.zeros(2)", "self.by_name['a']", "array state 'a'"),
        ("self.by_name = {'a': np.zeros(2)}", "self.by_name['a']", "array state 'a'"),
        ("self.layers[1] = self.layers[1] - 1", "self.layers[1]", "array state 'layer 1'"),
        ("self.layers.append(self.layers.pop(0))", "self.layers[0]", "array state 'layer 0'"),
        ("self.model.weights = np.ones(2)", "self.model.weights", "array state 'weights'"),
        ("self.slotted = Slotted(np.ones(2))", "self.slotted.held", "array state 'slotted'"),
        ("self.zero = self.zero + 1", "self.zero", "array state 'zero'"),
        ("del self.other", "self.other", "array state 'other'"),
        ("self.count = 5", "self.count", "value state 'count'"),
        ("self.recent = [*self.recent, 1]", "self.recent", "list state 'recent'"),
    ],
)
def test_a_state_that_was_replaced_instead_of_changed_is_refused_by_name(
    tmp_path: Path, action: str, place: str, state: str
) -> None:
    cause = failure_after(action, tmp_path)
    assert f"operator 'op' in region 'r0': {place} was the {state} when open() returned" in cause


@pytest.mark.parametrize(
    "action",
    [
        "self.x += 1",
        "self.x[:] = self.x + 1",
        "self.x = self.x[:]",
        "self.current = self.other",
        "self.current = None",
        "self.current = self.x[0]",
        "self.rows = self.rows.T",
        "self.zero += 1",
        "self.count.value += 1; self.recent.items = [1]; self.recent.append(2)",
        "self.anything = self.x + 1",
    ],
)
def test_a_state_that_was_changed_in_place_is_as_good_as_before(
    tmp_path: Path, action: str
) -> None:
    assert failure_after(action, tmp_path) == ""


class Curious(Troubled):
    """Looks at what it is given."""

    seen: ClassVar[set[str]] = set()

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.seen.update(name for name in dir(ctx.state) if not name.startswith("_"))
        assert all(callable(getattr(ctx.state, name)) for name in self.seen)


def test_completion_of_the_state_shows_what_declares_states(tmp_path: Path) -> None:
    pipeline = hf.regional(region_by="region").apply(Curious(), schema=COUNTED)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 1))
    declaring = {"array", "broadcast", "list", "map", "table", "timers", "union", "value"}
    assert Curious.seen == declaring


@pytest.mark.parametrize("fill", [1.5, 300, -1, float("nan"), 2.0**63])
def test_an_array_is_not_filled_with_another_value(fill: float) -> None:
    registry = StateRegistry(np, owner="test")
    with pytest.raises(hf.StateError, match=r"'x' of test: fill=.* is not allowed: no uint8 is "):
        registry.array("x", shape=2, dtype="uint8", fill=fill)
    assert registry.array("x", shape=2, dtype="uint8", fill=255.0).tolist() == [255, 255]


@pytest.mark.parametrize("value", [np.datetime64(1, "ns"), np.timedelta64(1, "ns")])
def test_times_of_numpy_do_not_become_numbers(value: Any) -> None:
    with pytest.raises(hf.StateError, match=r"a value of type .*64 cannot be kept"):
        encode_value([value])
