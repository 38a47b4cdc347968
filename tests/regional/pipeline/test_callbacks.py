"""Methods of users that would do nothing are refused, and so is a result that nothing takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.base.callbacks import methods_of
from holdfast.regions.task.operators import PUT_OUT
from support.regional.own_sink import SqliteSink
from support.regional.pipelines import ROWS, partitions_of, rows_of


class Passes(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class Counts(hf.OperatorCoordinator):
    supports_fallback = True

    def checkpoint(self, checkpoint: int) -> bytes:
        return b""

    def reset(self, snapshot: bytes | None) -> None:
        pass


def run(query: hf.LocalQuery, batches: int) -> None:
    for number in range(batches):
        query.run_batch(partitions_of(rows_of(number, ["a"]), 1))


def yields(self: Any, *_: Any) -> Any:
    yield


async def waits(self: Any, *_: Any) -> None:
    pass


async def yields_and_waits(self: Any, *_: Any) -> Any:
    yield


def returns(self: Any, *_: Any) -> Any:
    return 7


def changed(kind: type, method: str, body: Any) -> Any:
    return type("Changed", (kind,), {method: body})


@pytest.mark.parametrize("body", [yields, waits, yields_and_waits])
@pytest.mark.parametrize("method", methods_of(hf.Operator))
def test_methods_of_operators_that_would_not_run_are_refused(method: str, body: Any) -> None:
    operator = changed(Passes, method, body)()
    pipeline = hf.regional(region_by="region")
    if body is yields and method in PUT_OUT:
        pipeline.apply(operator, schema=ROWS)
        return
    with pytest.raises(TypeError, match=rf"Changed\.{method}\(\) (is async|has a 'yield')"):
        pipeline.apply(operator, schema=ROWS)


@pytest.mark.parametrize("body", [yields, waits, yields_and_waits])
@pytest.mark.parametrize("method", methods_of(hf.OperatorCoordinator))
def test_methods_of_coordinators_that_would_not_run_are_refused(method: str, body: Any) -> None:
    coordinator = changed(Counts, method, body)()
    with pytest.raises(TypeError, match=rf"Changed\.{method}\(\) (is async|has a 'yield')"):
        hf.regional(region_by="region").apply(Passes(), schema=ROWS, coordinator=coordinator)


@pytest.mark.parametrize("body", [yields, waits, yields_and_waits])
@pytest.mark.parametrize("method", methods_of(hf.TwoPhaseSink))
def test_methods_of_sinks_that_would_not_run_are_refused(
    method: str, body: Any, tmp_path: Path
) -> None:
    sink = changed(SqliteSink, method, body)(tmp_path / "out.db")
    pipeline = hf.regional(region_by="region").apply(Passes(), schema=ROWS)
    if body is yields and method == "persist":
        pipeline.write_to(sink)
        return
    with pytest.raises(TypeError, match=rf"Changed\.{method}\(\) (is async|has a 'yield')"):
        pipeline.write_to(sink)


@pytest.mark.parametrize("function", [yields, waits, yields_and_waits])
def test_functions_that_would_not_run_are_refused(function: Any) -> None:
    pipeline = hf.regional(region_by="region").apply(Passes(), schema=ROWS)
    with pytest.raises(TypeError, match=r"\(\) (is async|has a 'yield')"):
        pipeline.foreach_batch(function)


@pytest.mark.parametrize("method", ["open", "on_regional_checkpoint_completed", "on_event"])
def test_a_result_of_an_operator_that_nothing_takes_is_an_error(
    method: str, tmp_path: Path
) -> None:
    class Sends(Counts):
        def start(self, gateway: hf.EventGateway) -> None:
            self.gateway = gateway

        def begin_batch(self, checkpoint: int) -> None:
            for region in self.gateway.regions:
                self.gateway.send(region, b"now")

    bodies = {"on_event": lambda *_: None, method: returns}
    operator = type("Changed", (Passes,), bodies)()
    writer = (
        hf.regional(region_by="region")
        .apply(operator, schema=ROWS, coordinator=Sends())
        .foreach_batch(lambda *_: None)
    )
    with (
        pytest.raises(hf.RegionalQueryError, match="returned int, which nothing takes"),
        writer.open_local(tmp_path / "ckpt") as query,
    ):
        run(query, 3)


@pytest.mark.parametrize("method", ["start", "begin_batch", "reset"])
def test_a_result_of_a_coordinator_that_nothing_takes_is_an_error(
    method: str, tmp_path: Path
) -> None:
    writer = (
        hf.regional(region_by="region")
        .apply(Passes(), schema=ROWS, coordinator=changed(Counts, method, returns)())
        .foreach_batch(lambda *_: None)
    )
    with (
        pytest.raises((TypeError, hf.RegionalQueryError), match="int, which nothing takes"),
        writer.open_local(tmp_path / "ckpt") as query,
    ):
        query.run_batch(partitions_of(rows_of(0, ["a"]), 1))


def test_a_result_of_a_function_or_sink_that_nothing_takes_is_an_error(tmp_path: Path) -> None:
    pipeline = hf.regional(region_by="region").apply(Passes(), schema=ROWS)
    sink = changed(SqliteSink, "commit", returns)(tmp_path / "out.db")
    for writer in (pipeline.foreach_batch(lambda rows, _: rows), pipeline.write_to(sink)):
        name = str(id(writer))
        with (
            pytest.raises(Exception, match="which nothing takes: let it return None"),
            writer.open_local(tmp_path / name) as query,
        ):
            query.run_batch(partitions_of(rows_of(0, ["a"]), 1))
