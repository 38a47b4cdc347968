"""How a pipeline in Structured Streaming ends, with a stand-in for Spark."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.regions.base.errors import JvmLostError
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.runners.spark import query as query_module
from holdfast.regions.runners.spark import split_stream
from holdfast.regions.runners.spark.query import RegionalQuery

WAIT_SECONDS = 60


class Spark:
    """A query that ends when the test says so, by an error if it gives one."""

    def __init__(self) -> None:
        self.there = True
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.run_batch: Callable[[Any, int], None]

    @property
    def status(self) -> dict[str, str]:
        self.answer()
        return {"message": "waiting"}

    def awaitTermination(self) -> None:  # noqa: N802 - as in PySpark
        assert self.ended.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.answer()
        self.ended.set()

    def processAllAvailable(self) -> None:  # noqa: N802 - as in PySpark
        self.answer()

    def answer(self) -> int:
        if not self.there:
            raise ConnectionRefusedError("[Errno 111] Connection refused")
        return 0

    def die(self) -> None:
        """Let the JVM be gone, as py4j tells it."""
        self.there = False
        self.error = RuntimeError("An error occurred while calling o42.awaitTermination")
        self.ended.set()


class Writer:
    """Takes any settings of a stream."""

    def __init__(self, spark: Spark) -> None:
        self.spark = spark

    def foreachBatch(self, run: Callable[[Any, int], None]) -> Writer:  # noqa: N802 - as in PySpark
        self.spark.run_batch = run
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: self.spark if name == "start" else self


class Read:
    """Keeps the options of a stream that is read."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def option(self, name: str, value: str) -> Read:
        self.options[name] = value
        return self

    def __getattr__(self, name: str) -> Callable[..., Read]:
        return lambda *_: self


def started(
    spark: Spark, path: Path, opened: ExitStack, **calls: Callable[..., object]
) -> RegionalQuery:
    jvm = SimpleNamespace(System=SimpleNamespace(currentTimeMillis=spark.answer))
    context = SimpleNamespace(_jvm=jvm)
    source: Any = SimpleNamespace(
        sparkSession=SimpleNamespace(sparkContext=context), writeStream=Writer(spark)
    )
    latest = SimpleNamespace(id=7, batch_id=3, regions={}, failed={})
    facade: Any = SimpleNamespace(
        plan=SimpleNamespace(pipeline="counting"),
        folders=CheckpointFolders(path),
        latest=latest,
        saved=False,
        stopped=False,
        **{"interrupt": lambda: None, "finish": lambda: None, **calls},
    )
    return RegionalQuery(
        source,
        facade,
        {},
        regional=True,
        bounded=False,
        max_file_bytes=1,
        opened=opened,
    )


def test_a_jvm_that_dies_ends_the_pipeline_although_nothing_can_be_closed(tmp_path: Path) -> None:
    spark, opened, closed = Spark(), ExitStack(), []
    opened.callback(closed.append, "first")
    opened.callback(spark.answer)
    query = started(spark, tmp_path, opened)
    spark.die()
    with pytest.raises(holdfast.RegionalQueryError, match=r"JVM .* is gone.*checkpoint 7"):
        query.awaitTermination(WAIT_SECONDS)
    assert closed == ["first"]
    assert not query.isActive
    assert isinstance(query.exception(), JvmLostError)
    for call in (query.stop, query.processAllAvailable, lambda: query.stop_with_savepoint("s")):
        with pytest.raises(holdfast.RegionalQueryError, match="JVM of its driver is gone"):
            call()
    assert (query.status()["active"], query.status()["message"]) == (False, "")


def test_code_of_a_batch_and_a_forked_child_cannot_wait_for_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "batch_exchanges", lambda *_, **__: [])
    calls: dict[str, Callable[[RegionalQuery], object]] = {
        "stop": lambda query: query.stop(),
        "awaitTermination": lambda query: query.awaitTermination(1),
        "processAllAvailable": lambda query: query.processAllAvailable(),
        "stop_with_savepoint": lambda query: query.stop_with_savepoint(tmp_path / "saved"),
    }
    refused: list[str] = []

    def batch(*_: object, **__: object) -> None:
        for name, call in calls.items():
            with pytest.raises(holdfast.RegionalQueryError, match=f"{name}.*own code"):
                call(query)
            refused.append(name)

    spark = Spark()
    query = started(spark, tmp_path, ExitStack(), run_batch=batch)
    spark.run_batch(SimpleNamespace(), 0)
    assert refused == [*calls]
    child = os.fork()
    if not child:
        status = 1
        try:
            for name, call in calls.items():
                with pytest.raises(holdfast.RegionalQueryError, match=f"{name}.*forked"):
                    call(query)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    query.stop()


def test_a_pipeline_that_ended_well_may_be_stopped_after_its_jvm_died(tmp_path: Path) -> None:
    spark = Spark()
    query = started(spark, tmp_path, ExitStack())
    query.stop()
    spark.there = False
    query.stop()
    assert query.awaitTermination(WAIT_SECONDS)


def test_whatever_ends_the_thread_that_watches_is_raised(tmp_path: Path) -> None:
    spark = Spark()

    def exiting() -> None:
        raise SystemExit("an operator's coordinator called exit")

    query = started(spark, tmp_path, ExitStack(), finish=exiting)
    with pytest.raises(holdfast.RegionalQueryError, match="called exit"):
        query.stop()


def test_an_error_of_closing_keeps_the_error_that_ended_the_pipeline(tmp_path: Path) -> None:
    spark, opened = Spark(), ExitStack()
    opened.callback(lambda: 1 / 0)
    query = started(spark, tmp_path, opened)
    spark.error = RuntimeError("the source is away")
    spark.ended.set()
    with pytest.raises(holdfast.RegionalQueryError, match="the source is away"):
        query.awaitTermination(WAIT_SECONDS)


def test_a_process_that_connects_and_says_nothing_does_not_hold_up_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert split_stream._Handler.timeout is not None
    monkeypatch.setattr(split_stream._Handler, "timeout", 0.05)
    enumerator: Any = SimpleNamespace(has_work=lambda: True)
    stream = split_stream.SplitStream(enumerator)
    read = Read()
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=id), readStream=read)
    stream.rows(session, ["r0"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(read.options["socket"])
        reader = split_stream.SplitStreamReader(read.options["socket"], ["r0"])
        assert reader.latestOffset({"batch": 0}, None) == {"batch": 1}
        stream.close()
