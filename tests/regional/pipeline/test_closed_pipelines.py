"""Operators, arrays and threads go with their pipeline, without Python's cyclic collector."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.runners.local import LocalRunner
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, partitions_of, rows_of

REGIONS = ["a", "b", "c"]

#: Everything of the pipelines of a test, by its name.
LIVING: list[tuple[str, weakref.ref[Any]]] = []
#: Threads that ran before a test.
BEFORE: set[threading.Thread] = set()


def note(**things: Any) -> None:
    LIVING.extend((name, weakref.ref(thing)) for name, thing in things.items())


class Holding(Troubled):
    """Keeps all that an operator is given, in each kind of state."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx, self.finish = ctx, ctx.finish
        self.large = ctx.state.array("large", shape=(1 << 18,), dtype="int64")
        self.exact = ctx.state.array("exact", shape=(1 << 18,), dtype="int64", exact=True)
        self.table = ctx.state.table("table", key=pa.int64(), value=pa.int64(), ttl="1 day")
        self.value = ctx.state.value("value", 0, ttl="1 day")
        self.list = ctx.state.list("list")
        self.timers = ctx.state.timers("timers", key=pa.int64(), time="processing")
        note(operator=self, context=ctx, large=self.large, exact=self.exact)
        self.opened()

    def opened(self) -> None:
        """Do nothing more."""

    def on_timers(self, name: str, due: pa.RecordBatch) -> None:
        """Drop timers."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.ctx.emit("ids", batch.select(["id"]))
        self.table.upsert(batch["id"], batch["key"])
        self.timers.at(batch["id"], self.ctx.processing_time() + timedelta(days=1))
        self.value.value += 1
        self.list.append("x")
        self.large += 1
        yield from super().process(batch)


class Unopened(Holding):
    def opened(self) -> None:
        raise ValueError("it does not open")


class Sending(hf.OperatorCoordinator):
    """Keeps its gateway."""

    supports_fallback = True

    def start(self, gateway: Any) -> None:
        self.gateway = gateway
        note(coordinator=self)

    def checkpoint(self, checkpoint: int) -> bytes:
        return b""

    def reset(self, snapshot: bytes | None) -> None:
        pass

    def checkpoint_fallback(self, checkpoint: int, origins: Any) -> bytes:
        return b""


def open_pipeline(
    path: Path, operator: hf.Operator, *, checkpoint: str = "ckpt", **options: Any
) -> hf.LocalQuery:
    query = (
        hf.regional(region_by="region")
        .apply(operator, schema=COUNTED, name="count", coordinator=Sending())
        .side("ids", schema=pa.schema([("id", pa.int64())]))
        .write_parquet(path / "ids")
        .write_parquet(path / "out")
        .open_local(path / checkpoint, **options)
    )
    note(query=query)
    held = [*vars(query).values()]
    held += [more for one in held if isinstance(one, LocalRunner) for more in vars(one).values()]
    kinds = {"driver": PipelineDriver, "runner": LocalRunner, "plan": PipelinePlan}
    for name, kind in kinds.items():
        note(**{name: next(one for one in held if isinstance(one, kind))})
    return query


def run(query: hf.LocalQuery, number: int) -> None:
    query.run_batch(partitions_of(rows_of(number, REGIONS), 2), batch_id=number)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A folder with a checkpoint, for pipelines that live without a cyclic collector."""
    with open_pipeline(tmp_path, Holding(None)) as query:
        run(query, 0)
    del query
    gc.collect()
    LIVING.clear()
    BEFORE.update(threading.enumerate())
    gc.disable()
    try:
        yield tmp_path
    finally:
        gc.enable()
        BEFORE.clear()


def require_gone(*kept: str) -> None:
    assert LIVING
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast") and thread not in BEFORE:
            thread.join(30)
            assert not thread.is_alive(), thread.name
    assert [name for name, thing in LIVING if thing() is not None and name not in kept] == []


def test_nothing_stays_of_a_closed_pipeline(path: Path) -> None:
    for number in (1, 2):
        with open_pipeline(path, Holding(None)) as query:
            run(query, number)
        del query
    require_gone()


def test_a_closed_pipeline_that_is_kept_has_no_operators(path: Path) -> None:
    query = open_pipeline(path, Holding(None))
    run(query, 1)
    query.close()
    require_gone("query", "driver", "runner", "plan", "coordinator")
    assert query.latest.batch_id == 1


def test_nothing_stays_of_a_pipeline_that_ended_its_data_or_was_saved(path: Path) -> None:
    with open_pipeline(path, Holding(None)) as query:
        run(query, 1)
        query.stop_with_savepoint(path / "saved")
    with open_pipeline(path, Holding(None)) as query:
        query.end_of_data()
    del query
    require_gone()


@pytest.mark.parametrize("regional", [True, False])
def test_nothing_stays_of_a_pipeline_whose_region_fails(path: Path, regional: bool) -> None:
    hooks = Hooks()
    hooks.fail_for("b", range(1000, 2000))
    options = {} if regional else {"max_consecutive_failures": 0, "tolerable_failed_checkpoints": 0}
    with open_pipeline(path, Holding(hooks), **options) as query:
        try:
            run(query, 1)
            assert regional
        except hf.RegionalQueryError:
            assert not regional
    del query
    require_gone()


def test_nothing_stays_of_operators_that_do_not_open(path: Path) -> None:
    with (
        open_pipeline(path, Unopened(None), tolerable_failed_checkpoints=0) as query,
        pytest.raises(hf.RegionalQueryError, match="it does not open"),
    ):
        run(query, 1)
    del query
    require_gone()


class Less(Troubled):
    """Declares less than `Holding`."""

    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.ctx = ctx
        note(operator=self)


@pytest.mark.parametrize("why", ["layout", "owner"])
def test_nothing_stays_of_a_start_that_fails(path: Path, why: str) -> None:
    operator, checkpoint = (Less(None), "ckpt") if why == "layout" else (Holding(None), "other")
    with pytest.raises((hf.LayoutChangedError, FileExistsError)) as error:
        open_pipeline(path, operator, checkpoint=checkpoint)
    del operator
    # The trace of the error is the caller's.
    error.value.with_traceback(None)
    del error
    require_gone()
