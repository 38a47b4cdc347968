"""State that operators declare in another form than the checkpoint has it in (SEMANTICS R78)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from support.regional.pipelines import ROWS

SHOWN = pa.schema([("region", pa.string()), ("id", pa.int64()), ("state", pa.string())])

Declare = Callable[[hf.OperatorContext], Any]


class Keeps(hf.Operator):
    """Declares state as it is told, changes it with every row, and puts out what it holds then."""

    region_safe = True

    def __init__(self, declare: Declare) -> None:
        self.declare = declare

    def open(self, ctx: hf.OperatorContext) -> None:
        self.state = self.declare(ctx)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        shown = []
        for _ in range(batch.num_rows):
            touch(self.state)
            shown.append(show(self.state))
        yield pa.RecordBatch.from_pydict(
            {"region": batch.column("region"), "id": batch.column("id"), "state": shown},
            schema=SHOWN,
        )


class Passes(Keeps):
    """The same in front of another operator: puts out its rows as they are."""

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        touch(self.state)
        return batch


def touch(state: Any) -> None:
    """Count one more row."""
    if isinstance(state, np.ndarray):
        state.flat[0] += 1
    elif hasattr(state, "append"):
        state.append(len(state))
    elif hasattr(state, "value"):
        state.value = (state.value or 0) + 1
    elif state is not None:
        state["rows"] = state.get("rows", 0) + 1


def show(state: Any) -> str:
    if isinstance(state, np.ndarray):
        return str(state.tolist())
    if hasattr(state, "append"):
        return str(list(state))
    return str(state.value if hasattr(state, "value") else state and dict(state))


def array(shape: Any = 3, dtype: str = "int64", **options: Any) -> Declare:
    return lambda ctx: ctx.state.array("x", shape=shape, dtype=dtype, **options)


def kind(of: str, name: str = "x", **options: Any) -> Declare:
    return lambda ctx: getattr(ctx.state, of)(name, **options)


def writer(path: Path, *operators: Declare, names: str = "ab", **options: Any) -> hf.RegionalWriter:
    pipeline = hf.regional(region_by="region")
    for declare, name in zip(operators[:-1], names, strict=False):
        pipeline = pipeline.apply(Passes(declare), schema=ROWS, name=name)
    last = names[len(operators) - 1]
    pipeline = pipeline.apply(Keeps(operators[-1]), schema=SHOWN, name=last, **options)
    return pipeline.write_parquet(path / "out")


def rows(region: str, *ids: int) -> list[pa.RecordBatch]:
    columns = {"region": [region] * len(ids), "id": list(ids), "key": [0] * len(ids)}
    return [pa.RecordBatch.from_pydict(columns, schema=ROWS)]


def published(path: Path) -> dict[int, str]:
    files = (path / "out").glob("*.parquet")
    found: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["state"] for row in found}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "lock" not in file.name
    }


def begun(path: Path, *operators: Declare, **options: Any) -> None:
    """Two regions with state, of which later batches have rows of none."""
    with writer(path, *operators, **options).open_local(path / "ckpt") as query:
        query.run_batch([rows("a", 1, 2), rows("b", 3)])


def value_and_array(ctx: hf.OperatorContext) -> Any:
    ctx.state.value("was")
    return ctx.state.array("x", shape=3, dtype="int64")


NOTHING: Declare = lambda ctx: None  # noqa: E731
CHANGES: dict[str, tuple[list[Declare], list[Declare], str]] = {
    "shape": ([array(3)], [array(4)], r"'x' .*<i8 of shape \(3,\).*<i8 of shape \(4,\)"),
    "rank": ([array(3)], [array((3, 1))], r"shape \(3,\) .* shape \(3, 1\)"),
    "dtype": ([array()], [array(dtype="int32")], r"<i8 .*<i4"),
    "byte order": ([array()], [array(dtype=">i8")], r"<i8 .*>i8"),
    "array to value": ([array()], [kind("value")], "an array .* declares a value"),
    "value to map": ([kind("value")], [kind("map")], "a value .* declares a map"),
    "map to value": ([kind("map")], [kind("value")], "a map .* declares a value"),
    "list to array": ([kind("list")], [array()], "a list .* declares an array"),
    "list to value": ([kind("list")], [kind("value")], "a list .* declares a value"),
    "renamed": ([kind("value")], [kind("value", "y")], "'x' .* no such state"),
    "dropped": ([value_and_array], [array()], "'was' .* no such state"),
    "moved": ([kind("value"), NOTHING], [NOTHING, kind("value")], "'x' of operator 'a'.* no such"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_declaration_is_refused_at_the_start_and_nothing_is_changed(
    tmp_path: Path, change: str
) -> None:
    before, after, message = CHANGES[change]
    begun(tmp_path, *before)
    found = contents(tmp_path)
    with pytest.raises(hf.LayoutChangedError, match=message) as error:
        writer(tmp_path, *after).open_local(tmp_path / "ckpt")
    assert "region 'a'" in str(error.value)
    assert "evolve=" in str(error.value)
    assert "drop_undeclared_state=True" in str(error.value)
    assert contents(tmp_path) == found
    # The old program goes on as if nothing had happened, new regions among its rows.
    with writer(tmp_path, *before).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4), rows("new", 5)])
    assert published(tmp_path).keys() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("mode", ["claim", "no_claim"])
def test_a_restore_is_refused_before_anything_is_copied_or_claimed(
    tmp_path: Path, mode: Any
) -> None:
    begun(tmp_path, array(3))
    found = contents(tmp_path)
    restore = hf.restore(tmp_path / "ckpt", mode=mode)
    with pytest.raises(hf.LayoutChangedError, match=r"shape \(4,\)"):
        writer(tmp_path, array(4)).open_local(tmp_path / "next", restore=restore)
    assert contents(tmp_path) == found
    grow = array(4, evolve=lambda old: np.append(old, 7))
    with writer(tmp_path, grow).open_local(tmp_path / "next", restore=restore) as query:
        query.run_batch([rows("a", 4)])
    assert published(tmp_path)[4] == "[3, 0, 0, 7]"


def test_going_back_is_refused_before_anything_is_given_up(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    with writer(tmp_path, array(3)).open_local(tmp_path / "ckpt") as query:
        back_to = query.latest.id
        query.run_batch([rows("a", 4)])
    found = contents(tmp_path)
    with pytest.raises(hf.LayoutChangedError, match=f"checkpoint {back_to} "):
        writer(tmp_path, array(4)).open_local(tmp_path / "ckpt", checkpoint_id=back_to)
    assert contents(tmp_path) == found


@pytest.mark.parametrize(
    "same",
    [
        array(3, fill=5),
        array((3,), exact=True),
        array(3, evolve=lambda old: 1 / 0),
        array(3, dtype="<i8"),
        lambda ctx: (ctx.state.map("more"), ctx.state.array("x", shape=3, dtype="int64"))[1],
    ],
)
def test_what_does_not_change_the_form_of_a_state_is_no_change(
    tmp_path: Path, same: Declare
) -> None:
    begun(tmp_path, array(3))
    with writer(tmp_path, same).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4)])
    assert published(tmp_path)[4] == "[3, 0, 0]"


# --- conversion ---------------------------------------------------------------------------------

EVOLVED: dict[str, tuple[Declare, Declare, str]] = {
    "shape": (array(3), array(5, evolve=lambda old: np.pad(old, (0, 2))), "[3, 0, 0, 0, 0]"),
    "dtype": (
        array(3),
        array(3, "float32", evolve=lambda old: (old / 2).astype("float32")),
        "[2.0, 0.0, 0.0]",
    ),
    "rank": (array(3), array((3, 1), evolve=lambda old: old.reshape(3, 1)), "[[3], [0], [0]]"),
    "array to value": (array(3), kind("value", evolve=lambda old: int(old[0])), "3"),
    "value to array": (kind("value"), array(3, evolve=lambda old: [old, 8, 9]), "[3, 8, 9]"),
    "value to map": (kind("value"), kind("map", evolve=lambda old: {"rows": old}), "{'rows': 3}"),
    "map to value": (kind("map"), kind("value", evolve=lambda old: old["rows"]), "3"),
    "list to array": (kind("list"), array(3, evolve=lambda old: [len(old), 0, 0]), "[3, 0, 0]"),
    "value to list": (kind("value"), kind("list", evolve=range), "[0, 1, 2]"),
}


@pytest.mark.parametrize("change", EVOLVED)
def test_state_is_converted_in_all_regions_with_the_next_checkpoint(
    tmp_path: Path, change: str
) -> None:
    before, after, shown = EVOLVED[change]
    begun(tmp_path, before)
    with writer(tmp_path, after).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4)])
        assert all(entry.origin == query.latest.id for entry in query.latest.regions.values())
    assert published(tmp_path)[4] == shown


def test_after_that_the_function_is_not_needed_and_not_called(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    grow = array(4, evolve=lambda old: np.append(old, 9))
    with writer(tmp_path, grow).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("new", 4)])
    assert published(tmp_path)[4] == "[1, 0, 0, 0]"
    with writer(tmp_path, array(4)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 5), rows("b", 6)])
    assert published(tmp_path) == {
        1: "[1, 0, 0]",
        2: "[2, 0, 0]",
        3: "[1, 0, 0]",
        4: "[1, 0, 0, 0]",
        5: "[3, 0, 0, 9]",
        6: "[2, 0, 0, 9]",
    }
    with pytest.raises(hf.LayoutChangedError, match=r"shape \(4,\) there"):
        writer(tmp_path, array(3)).open_local(tmp_path / "ckpt")


@pytest.mark.parametrize(
    ("evolve", "message"),
    [
        (lambda old: old, r"shape \(3,\)"),
        (lambda old: {}["k"], "KeyError: 'k'"),
        (lambda old: [0.5] * 4, "float64.* to .*int64"),
        (lambda old: None, r"shape \(\)"),
        (lambda old: np.full(4, 2**63, "uint64"), "values that int64 does not hold"),
    ],
)
def test_a_conversion_that_fails_ends_the_attempt_and_the_old_program_goes_on(
    tmp_path: Path, evolve: Any, message: str
) -> None:
    begun(tmp_path, array(3))
    with (
        writer(tmp_path, array(4, evolve=evolve)).open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.LayoutChangedError, match=f"operator 'a'.*{message}"),
    ):
        # No region of this batch is to be converted; those that are have no rows.
        query.run_batch([rows("new", 4)])
    with writer(tmp_path, array(3)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 5), rows("new", 6)])
    assert published(tmp_path).keys() == {1, 2, 3, 5, 6}
    assert published(tmp_path)[5] == "[3, 0, 0]"


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), ((), 1), ((2, 0), (0, 2))])
def test_arrays_without_items_or_dimensions_are_converted(
    tmp_path: Path, before: Any, after: Any
) -> None:
    def kept(shape: Any, **options: Any) -> Declare:
        def declare(ctx: hf.OperatorContext) -> Any:
            ctx.state.array("x", shape=shape, **options)
            return ctx.state.value("y")

        return declare

    begun(tmp_path, kept(before))
    with pytest.raises(hf.LayoutChangedError, match="'x'"):
        writer(tmp_path, kept(after)).open_local(tmp_path / "ckpt")
    resize = kept(after, evolve=lambda old: np.resize(old, after))
    for number in (4, 5):
        with writer(tmp_path, resize).open_local(tmp_path / "ckpt") as query:
            query.run_batch([rows("a", number)])
    assert published(tmp_path)[5] == "4"


def test_a_region_that_fails_meanwhile_lets_no_other_go_on_in_the_new_form(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    grow = array(4, evolve=lambda old: np.append(old, 7))
    failing = hf.regional(region_by="region").apply(Fails(grow), schema=SHOWN, name="a")
    with (
        failing.write_parquet(tmp_path / "out").open_local(
            tmp_path / "ckpt", global_timeout=timedelta()
        ) as query,
        pytest.raises(hf.RegionalQueryError, match="in trouble"),
    ):
        query.run_batch([rows("a", 9), rows("b", 4), rows("new", 5)])
    with writer(tmp_path, array(3)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 9), rows("b", 4), rows("new", 5)])
    assert published(tmp_path).keys() == {1, 2, 3, 4, 5, 9}


def test_a_large_array_is_converted_and_written_anew(tmp_path: Path) -> None:
    begun(tmp_path, array(300_000))
    grow = array(300_001, evolve=lambda old: np.append(old, 4))
    for ids in ([4], [5]):
        with writer(tmp_path, grow).open_local(tmp_path / "ckpt") as query:
            query.run_batch([rows("a", *ids)])
    with writer(tmp_path, array(300_001)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("b", 6)])
    assert published(tmp_path)[5].startswith("[4, 0, 0")
    assert published(tmp_path)[6].endswith(", 0, 4]")


# --- what is not declared any more --------------------------------------------------------------


@pytest.mark.parametrize("change", ["renamed", "dropped", "moved"])
def test_undeclared_state_is_dropped_if_the_start_says_so_and_once(
    tmp_path: Path, change: str
) -> None:
    before, after, _ = CHANGES[change]
    begun(tmp_path, *before)
    with writer(tmp_path, *after).open_local(
        tmp_path / "ckpt", drop_undeclared_state=True
    ) as query:
        query.run_batch([rows("new", 4)])
    with writer(tmp_path, *after).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 5), rows("b", 6)])
    assert published(tmp_path).keys() == {1, 2, 3, 4, 5, 6}


def test_what_is_declared_in_another_form_is_not_dropped(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    with pytest.raises(hf.LayoutChangedError, match=r"shape \(4,\)"):
        writer(tmp_path, array(4)).open_local(tmp_path / "ckpt", drop_undeclared_state=True)


@pytest.mark.parametrize("restored", [False, True])
def test_an_operator_that_is_gone_is_dropped_with_its_state(tmp_path: Path, restored: bool) -> None:
    begun(tmp_path, kind("value"), array(3), names="ab")
    one = writer(tmp_path, array(3), names="b")
    folder = tmp_path / ("next" if restored else "ckpt")
    options: Any = {"restore": hf.restore(tmp_path / "ckpt")} if restored else {}
    with pytest.raises(hf.LayoutChangedError, match="drop_undeclared_state=True"):
        one.open_local(folder, **options)
    with one.open_local(folder, drop_undeclared_state=True, **options) as query:
        query.run_batch([rows("new", 4)])
    with one.open_local(folder, **options) as query:
        query.run_batch([rows("a", 5)])
        entries = query.latest.regions.values()
        assert {found.name for entry in entries for found in entry.operators} == {"b"}
    assert published(tmp_path)[5] == "[3, 0, 0]"


# --- what is not known at the start -------------------------------------------------------------


class OnADevice:
    """Declares an array where there is a device."""

    there: ClassVar[bool] = True

    def __init__(self, shape: int) -> None:
        self.shape = shape

    def __call__(self, ctx: hf.OperatorContext) -> Any:
        if not OnADevice.there:
            raise RuntimeError("there is no such device here")
        return ctx.state.array("x", shape=self.shape, dtype="int64")


def test_an_operator_that_does_not_open_at_the_start_is_checked_when_its_regions_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, OnADevice(3))
    monkeypatch.setattr(OnADevice, "there", False)
    with writer(tmp_path, OnADevice(4)).open_local(tmp_path / "ckpt") as query:
        monkeypatch.setattr(OnADevice, "there", True)
        with pytest.raises(hf.LayoutChangedError, match=r"region 'a'.*shape \(4,\)"):
            query.run_batch([rows("a", 4), rows("new", 5), rows("other", 6)])
    with writer(tmp_path, OnADevice(3)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4), rows("new", 5), rows("other", 6)])
    assert published(tmp_path)[4] == "[3, 0, 0]"


@pytest.mark.parametrize("items", [3, 3000])
def test_a_state_may_be_declared_by_what_another_one_holds(tmp_path: Path, items: int) -> None:
    def declare(length: int | None, more: int) -> Declare:
        def by_a_list(ctx: hf.OperatorContext) -> Any:
            keys = ctx.state.list("keys")
            if not keys.items:
                keys.items = list(range(length or 0))
            return ctx.state.array("x", shape=len(keys) + more, dtype="int64")

        return by_a_list

    begun(tmp_path, declare(items, 0))
    with pytest.raises(hf.LayoutChangedError, match=rf"\({items},\).*\({items + 1},\)"):
        writer(tmp_path, declare(None, 1)).open_local(tmp_path / "ckpt")
    with writer(tmp_path, declare(None, 0)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4), rows("b", 5)])
    assert published(tmp_path)[4].startswith("[3, 0, 0")


def test_what_is_declared_beside_a_very_large_value_is_compared_when_the_region_runs(
    tmp_path: Path,
) -> None:
    def declare(more: int) -> Declare:
        def by_a_text(ctx: hf.OperatorContext) -> Any:
            text = ctx.state.value("text", "x" * 2_000_000)
            return ctx.state.array("x", shape=len(text.value or "") // 1_000_000 + more)

        return by_a_text

    begun(tmp_path, declare(0))
    with (
        writer(tmp_path, declare(1)).open_local(tmp_path / "ckpt") as query,
        pytest.raises(hf.LayoutChangedError, match=r"\(2,\).*\(3,\)"),
    ):
        query.run_batch([rows("a", 4), rows("new", 5)])
    with writer(tmp_path, declare(0)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4), rows("new", 5)])
    assert published(tmp_path)[4] == "[3.0, 0.0]"


def test_an_operator_that_hangs_in_open_does_not_keep_the_start_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = threading.Event()

    def unavailable(self: OnADevice, ctx: hf.OperatorContext) -> None:
        hangs.wait()

    begun(tmp_path, OnADevice(3))
    with monkeypatch.context() as patched:
        patched.setattr(OnADevice, "__call__", unavailable)
        query = writer(tmp_path, OnADevice(3)).open_local(
            tmp_path / "ckpt", region_timeout=timedelta(seconds=1)
        )
    hangs.set()
    query.close()
    assert "did not return within region_timeout" in caplog.text


def test_a_region_that_declares_something_of_its_own_is_found(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    other: Declare = lambda ctx: array(4 if ctx.region == "b" else 3)(ctx)  # noqa: E731
    with pytest.raises(hf.LayoutChangedError, match="region 'b'"):
        writer(tmp_path, other).open_local(tmp_path / "ckpt")


@pytest.mark.parametrize("kinds", [("broadcast", "value"), ("union", "list"), ("list", "union")])
def test_what_regions_share_is_checked_and_converted_like_the_rest(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    class Shares(Keeps):
        region_safe = False

    def shared(declare: Declare) -> hf.RegionalWriter:
        pipeline = hf.regional(region_by="region").apply(Shares(declare), schema=SHOWN, name="a")
        return pipeline.write_parquet(tmp_path / "out")

    def open_local(declare: Declare) -> hf.LocalQuery:
        query: hf.LocalQuery = shared(declare).open_local(
            tmp_path / "ckpt", max_consecutive_failures=0
        )
        return query

    before, after = kinds
    with open_local(kind(before)) as query:
        query.run_batch([rows("a", 1)])
    with pytest.raises(hf.LayoutChangedError, match=f"a {before} there.* declares a {after}"):
        open_local(kind(after))
    with open_local(kind(after, evolve=lambda old: old)) as query:
        query.run_batch([rows("a", 4)])
    assert published(tmp_path)[4] in ("2", "[0, 1]")


# --- what else is in the checkpoint -------------------------------------------------------------


class Fails(Keeps):
    """The same, and fails at the row with the id 9."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if 9 in batch.column("id").to_pylist():
            raise RuntimeError("in trouble")
        return super().process(batch)


def test_rows_that_a_region_owes_come_to_its_converted_state(tmp_path: Path) -> None:
    begun(tmp_path, array(3))
    failing = hf.regional(region_by="region").apply(Fails(array(3)), schema=SHOWN, name="a")
    with failing.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 9), rows("b", 4)])
        assert query.latest.failed
    grow = array(4, evolve=lambda old: np.append(old, 7))
    with writer(tmp_path, grow).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("b", 5)])
    assert published(tmp_path)[9] == "[3, 0, 0, 7]"


def test_a_region_whose_data_has_ended_is_not_opened_and_not_compared(tmp_path: Path) -> None:
    with writer(tmp_path, array(3)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 1)])
        query.end_of_data()
    with writer(tmp_path, array(4)).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("new", 4)])
    assert published(tmp_path)[4] == "[1, 0, 0, 0]"


def test_a_state_is_renamed_by_declaring_both_names_for_one_start(tmp_path: Path) -> None:
    def both(ctx: hf.OperatorContext) -> Any:
        old, new = ctx.state.value("x"), ctx.state.value("y")
        if new.value is None:
            new.value = old.value
        return new

    begun(tmp_path, kind("value"))
    with writer(tmp_path, both).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 4), rows("b", 5)])
    with writer(tmp_path, kind("value", "y")).open_local(
        tmp_path / "ckpt", drop_undeclared_state=True
    ) as query:
        query.run_batch([rows("a", 6)])
    with writer(tmp_path, kind("value", "y")).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("b", 7)])
    assert (published(tmp_path)[6], published(tmp_path)[7]) == ("4", "3")


@pytest.mark.parametrize("restored", [False, True])
def test_another_region_by_is_refused_before_anything_is_changed(
    tmp_path: Path, restored: bool
) -> None:
    begun(tmp_path, array(3))
    found = contents(tmp_path)
    pipeline = hf.regional(region_by="key").apply(Keeps(array(3)), schema=SHOWN, name="a")
    options: Any = {"restore": hf.restore(tmp_path / "ckpt", mode="claim")} if restored else {}
    with pytest.raises(hf.LayoutChangedError, match="'region' and are named by 'key' now"):
        pipeline.write_parquet(tmp_path / "out").open_local(
            tmp_path / ("next" if restored else "ckpt"), drop_undeclared_state=True, **options
        )
    assert contents(tmp_path) == found


def test_an_instance_is_compared_with_the_states_that_it_is_made_of(tmp_path: Path) -> None:
    def routed(declare: Declare, parallelism: int) -> hf.RegionalWriter:
        return writer(tmp_path, declare, parallelism=parallelism, route_by="id")

    with routed(kind("list"), 2).open_local(tmp_path / "ckpt") as query:
        query.run_batch([rows("a", 1, 2, 3, 4)])
    restore = hf.restore(tmp_path / "ckpt")
    with pytest.raises(hf.LayoutChangedError, match=r"a list there.* declares a value"):
        routed(kind("value"), 3).open_local(tmp_path / "next", restore=restore)
    counted = kind("value", evolve=len)
    with routed(counted, 3).open_local(tmp_path / "next", restore=restore) as query:
        query.run_batch([rows("a", 5)])
        (entry,) = query.latest.regions.values()
        states = [state for operator in entry.operators for state in operator.states]
        assert len(states) == 3
        assert sum(int(state.inline or b"") for state in states) == 5
