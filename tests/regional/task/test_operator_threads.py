"""The thread on which an operator lives, and what it keeps there."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from support.regional.hooks import Hooked, Hooks
from support.regional.pipelines import ROWS, Gate, Row, partitions_of, rows_of
from support.regional.tuned import tune_tasks

REGIONS = [f"r{number:02}" for number in range(6)]
KEPT = contextvars.ContextVar("KEPT", default="nothing")
LOCAL = threading.local()


class Calls(Hooked):
    """Notes on which thread it is called: as (call, thread) of an instance, by region."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.calls: list[tuple[str, int]] = []
        ctx.state.value("rows", 0)
        self.note("open")

    def note(self, call: str) -> None:
        self.calls.append((call, threading.get_ident()))
        assert self.hooks is not None
        self.hooks.seen.append((call, self.region, id(self)))
        INSTANCES.setdefault(id(self), self)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.note("process")
        yield batch
        self.note("process")
        self.before(batch)

    def on_end_of_data(self) -> None:
        self.note("on_end_of_data")

    def on_checkpoint_completed(self, checkpoint: int) -> None:
        self.note("on_checkpoint_completed")

    def on_checkpoint_fallback(self, checkpoint: int, origin: int) -> None:
        self.note("on_checkpoint_fallback")

    def on_checkpoint_aborted(self, checkpoint: int) -> None:
        self.note("on_checkpoint_aborted")

    def close(self) -> None:
        self.note("close")
        if self.hooks is not None and self.hooks.on_flush is not None:
            self.hooks.on_flush(self.region)


# Every instance of the test at hand, by its id; kept, so that no other gets the same.
INSTANCES: dict[int, Calls] = {}


@pytest.fixture(autouse=True)
def _no_instances() -> None:
    INSTANCES.clear()


def opened(path: Path, operator: Any, **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(operator, schema=ROWS)
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **options)
    )


def run(
    query: hf.LocalQuery, numbers: range, regions: Sequence[str] = REGIONS, *, tasks: int = 2
) -> None:
    for number in numbers:
        # A region comes in another partition, and so in another task, than in the batch before.
        parts = partitions_of(rows_of(number, regions, each=3), tasks)
        query.run_batch(parts[number % tasks :] + parts[: number % tasks], batch_id=number)


def each_on_one_thread() -> list[list[str]]:
    """Check that every instance saw one thread, and was closed last; returns their calls."""
    for instance in INSTANCES.values():
        names = [name for name, _ in instance.calls]
        assert len({thread for _, thread in instance.calls}) == 1, instance.calls
        assert [names[0], names[-1], names.count("close")] == ["open", "close", 1]
    return [[name for name, _ in instance.calls] for instance in INSTANCES.values()]


@pytest.mark.parametrize("region_threads", [1, 4])
@pytest.mark.parametrize("tasks", [1, 3])
def test_an_instance_lives_on_one_thread(
    tmp_path: Path, hooks: Hooks, region_threads: int, tasks: int
) -> None:
    with opened(tmp_path, Calls(hooks), tasks=tasks, region_threads=region_threads) as query:
        run(query, range(4), tasks=tasks)
        query.end_of_data()
    calls = each_on_one_thread()
    assert len(calls) == len(REGIONS)
    assert all({"process", "on_checkpoint_completed", "on_end_of_data"} <= {*of} for of in calls)


def test_an_instance_that_is_not_at_its_end_of_data_is_closed_with_the_pipeline(
    tmp_path: Path, hooks: Hooks
) -> None:
    with opened(tmp_path, Calls(hooks)) as query:
        run(query, range(2))
    assert len(each_on_one_thread()) == len(REGIONS)


def test_instances_of_attempts_and_regions_that_fail_are_closed_on_their_thread(
    tmp_path: Path, hooks: Hooks
) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        failing = REGIONS[:4] if ids[0] >= 2000 else REGIONS[:1] if ids[0] >= 1000 else []
        if region in failing:
            raise RuntimeError("in trouble")

    hooks.on_rows = trouble
    with opened(tmp_path, Calls(hooks), region_threads=1) as query:
        run(query, range(2))
        with pytest.raises(hf.RegionalQueryError, match="in trouble"):
            run(query, range(2, 3))
    calls = each_on_one_thread()
    assert len(calls) > len(REGIONS)
    assert any("on_checkpoint_fallback" in of for of in calls)


@pytest.mark.parametrize("region_threads", [1, 4])
def test_a_region_that_hangs_takes_its_thread_with_it(
    tmp_path: Path, hooks: Hooks, region_threads: int
) -> None:
    gate = Gate()

    def hang(region: str, ids: Sequence[int]) -> None:
        if region == "r04" and ids[0] >= 1000:
            gate.pass_through()

    closed = threading.Event()
    with opened(
        tmp_path,
        Calls(hooks),
        region_threads=region_threads,
        region_timeout=timedelta(seconds=1),
    ) as query:
        run(query, range(1))
        hooks.on_rows = hang
        run(query, range(1, 2))
        assert set(query.latest.failed) == {"r04"}
        hooks.calm()
        run(query, range(2, 4))
        assert not query.latest.failed
        # The first instance hangs still; another one took its place on another thread.
        first, second = [it for it in INSTANCES.values() if it.region == "r04"]
        assert second.calls[0][1] != first.calls[0][1]
        hooks.on_flush = lambda region: closed.set()
        gate.open()
        assert closed.wait(60)
    each_on_one_thread()


def test_more_regions_than_threads_share_them(
    tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_tasks(monkeypatch.setattr, own_threads=2)
    with opened(tmp_path, Calls(hooks)) as query:
        run(query, range(3))
    assert len(each_on_one_thread()) == len(REGIONS)
    assert len({instance.calls[0][1] for instance in INSTANCES.values()}) == 2


def test_regions_that_share_the_thread_of_one_that_hangs_go_on_without_it(
    tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune_tasks(monkeypatch.setattr, own_threads=3)
    gate, hanging = Gate(), threading.Event()
    options: dict[str, Any] = {"max_failure_ratio": 0.9, "max_consecutive_failures": 100}
    with opened(tmp_path, Calls(hooks), region_timeout=timedelta(seconds=3), **options) as query:
        run(query, range(1), tasks=1)
        thread_of = {it.region: it.calls[0][1] for it in INSTANCES.values()}
        sharing = {region for region in REGIONS if thread_of[region] == thread_of["r00"]}

        def hang(region: str, ids: Sequence[int]) -> None:
            if region == "r00":
                hanging.set()
                gate.pass_through()
            elif region in sharing:
                # It may have its turn before r00.
                hanging.wait(60)

        hooks.on_rows = hang
        failed = []
        for number in range(1, 3):
            run(query, range(number, number + 1), tasks=1)
            failed.append(set(query.latest.failed))
        # One that failed shares no thread with others in the next batch.
        assert failed == [sharing, {"r00"}]
        assert len(sharing) == 2
        gate.open()


class Keeps(hf.Operator):
    """Keeps something on its thread when it opens, and says later what it finds there."""

    region_safe = True

    def __init__(self, keep: Callable[[str], Callable[[], object]]) -> None:
        self.keep = keep

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.found = self.keep(ctx.region)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self.found() == self.region
        return batch

    def close(self) -> None:
        assert self.found() == self.region
        CLOSED.append(self.region)


CLOSED: list[str] = []


def precision(region: str) -> Callable[[], object]:
    decimal.getcontext().prec = digits = 30 + int(region[1:])
    return lambda: region if len(str(decimal.Decimal(1) / 3)) == digits + 2 else "lost"


def numpy_errors(region: str) -> Callable[[], object]:
    np.seterr(divide="raise" if region > "r02" else "ignore")

    def found() -> str:
        try:
            np.array([1.0]) / 0.0
        except FloatingPointError:
            return region if region > "r02" else "raised"
        return "ignored" if region > "r02" else region

    return found


def context_variable(region: str) -> Callable[[], object]:
    KEPT.set(region)
    return KEPT.get


def thread_local(region: str) -> Callable[[], object]:
    LOCAL.region = region
    return lambda: LOCAL.region


def database(region: str) -> Callable[[], object]:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table region (name text)")
    connection.execute("insert into region values (?)", (region,))
    return lambda: connection.execute("select name from region").fetchone()[0]


def event_loop(region: str) -> Callable[[], object]:
    asyncio.set_event_loop(asyncio.new_event_loop())

    async def name() -> str:
        await asyncio.sleep(0)
        return region

    return lambda: asyncio.get_event_loop().run_until_complete(name())


@pytest.mark.parametrize("region_threads", [1, 4])
@pytest.mark.parametrize(
    "keep", [precision, numpy_errors, context_variable, thread_local, database, event_loop]
)
def test_an_operator_finds_what_it_kept_on_its_thread(
    tmp_path: Path, keep: Callable[[str], Callable[[], object]], region_threads: int
) -> None:
    CLOSED.clear()
    with opened(tmp_path, Keeps(keep), tasks=2, region_threads=region_threads) as query:
        run(query, range(3))
        assert not query.latest.failed
    assert sorted(CLOSED) == REGIONS


def test_operators_of_one_region_have_context_variables_of_their_own(tmp_path: Path) -> None:
    class Digits(hf.Operator):
        region_safe = True

        def __init__(self, digits: int) -> None:
            self.digits = digits

        def open(self, ctx: hf.OperatorContext) -> None:
            decimal.getcontext().prec = self.digits

        def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            for start in range(batch.num_rows):
                assert decimal.getcontext().prec == self.digits
                yield batch.slice(start, 1)

        def on_checkpoint_completed(self, checkpoint: int) -> None:
            assert decimal.getcontext().prec == self.digits

    rows: list[Row] = rows_of(0, REGIONS)
    with (
        hf.regional(region_by="region")
        .apply(Digits(40), schema=ROWS, name="first")
        .apply(Digits(50), schema=ROWS, name="second")
        .write_parquet(tmp_path / "out")
        .open_local(tmp_path / "ckpt", region_threads=1)
    ) as query:
        for number in range(2):
            query.run_batch(partitions_of(rows, 2), batch_id=number)
        assert not query.latest.failed
