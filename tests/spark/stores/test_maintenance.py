"""Spark's coordinator hears of base images, and stores may be unloaded after every batch."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.spark.operator_cases import SQL_CASES
from support.spark.operator_inputs import events
from support.spark.queries import (
    STATE,
    Batches,
    require_served_by,
    run,
    select_provider,
    settings,
    source,
    write_batch,
)
from support.spark.state_files import merged_files

BATCHES = 12


def test_a_store_that_writes_base_images_does_not_lag(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    # A store lags that is more than three versions and half a second behind, see support.py.
    low = {
        "spark.sql.shuffle.partitions": "2",
        STATE + "multiplierForMinVersionDiffToLog": "1",
        STATE + "multiplierForMinTimeDiffToLog": "1",
    }
    jvm: Any = spark._jvm
    coordinator = spark._jsparkSession.streams().stateStoreCoordinator()
    deadline = time.monotonic() + 60

    def wait_for_lagging(version: int, wanted: set[int]) -> None:
        """Until the partitions that lag behind ``version`` are these."""
        while True:
            run_id = jvm.java.util.UUID.fromString(query.runId)
            stores = coordinator.getLaggingStoresForTesting(run_id, version, False)
            found = {stores.apply(n).storeId().partitionId() for n in range(stores.size())}
            if found == wanted:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    with settings(spark, low):
        write_batch(folder, 0, [{"key": key} for key in range(20)])
        query = (
            source(spark, folder)
            .groupBy("key")
            .count()
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            # No base image yet: the coordinator takes such a store to be at version 0.
            wait_for_lagging(BATCHES, {0, 1})
            for number in range(1, BATCHES):
                write_batch(folder, number, [{"key": key} for key in range(20)])
            query.processAllAvailable()
            wait_for_lagging(BATCHES, set())
            wait_for_lagging(BATCHES * 2, {0, 1})
            # One partition rests from now on, and needs no new base image.
            for number in range(BATCHES, BATCHES * 2):
                write_batch(folder, number, [{"key": 0}])
            query.processAllAvailable()
            wait_for_lagging(BATCHES * 2, set())
        finally:
            query.stop()


@pytest.fixture
def no_maintenance(spark: SparkSession) -> None:
    """As where all queries unload: no thread, left by another query, closes stores of tasks.

    Spark starts it again with the next query that wants it.
    """
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stopMaintenanceTask()


ONE_PARTITION = {"spark.sql.shuffle.partitions": "1"}
UNLOADED = {**ONE_PARTITION, STATE + "unloadOnCommit": "true"}


def in_memory(versions: int) -> dict[str, str]:
    return {**ONE_PARTITION, "spark.sql.streaming.maxBatchesToRetainInMemory": str(versions)}


def rows_of(
    provider: str,
    name: str,
    spark: SparkSession,
    folder: Path,
    wanted: dict[str, str],
    progress: list[dict[str, Any]] | None = None,
) -> Batches:
    """Rows of every batch of a case on a provider, with a restart in the middle."""
    case = SQL_CASES[name]
    select_provider(spark, provider)
    try:
        with settings(spark, wanted):
            rows = run(
                spark,
                inputs={s: events(n, batches=4) for n, s in enumerate(case.streams)},
                query=case.query,
                mode=case.mode,
                folder=folder,
                progress=progress,
            )
    finally:
        select_provider(spark, "holdfast")
    require_served_by(provider, folder / "checkpoint")
    return rows


@pytest.mark.usefixtures("no_maintenance")
@pytest.mark.parametrize(
    ("wanted", "name", "later_loads"),
    [
        (UNLOADED, "aggregation-update", 1),
        # Spark does not unload the stores of a join.
        pytest.param(UNLOADED, "join-full-append", None, marks=pytest.mark.full),
        pytest.param(in_memory(0), "aggregation-update", 1, marks=pytest.mark.full),
        pytest.param(in_memory(0), "join-full-append", None, marks=pytest.mark.full),
        # Spark's own provider takes it as 0.
        pytest.param(in_memory(-1), "aggregation-update", 1, marks=pytest.mark.full),
        pytest.param(in_memory(1), "aggregation-update", 0, marks=pytest.mark.full),
    ],
    ids=["unloaded", "unloaded-join", "memory-0", "memory-0-join", "memory-negative", "memory-1"],
)
def test_stores_that_keep_less_in_memory_give_the_rows_of_rocksdb(
    wanted: dict[str, str], name: str, later_loads: int | None, spark: SparkSession, tmp_path: Path
) -> None:
    expected = rows_of("rocksdb", name, spark, tmp_path / "rocksdb", wanted)
    progress: list[dict[str, Any]] = []
    rows = rows_of("holdfast", name, spark, tmp_path / "holdfast", wanted, progress)
    assert rows == expected
    if later_loads is not None:
        metrics = [batch["stateOperators"][0]["customMetrics"] for batch in progress]
        # The first batch after a start loads in any case.
        part = [1] + [later_loads] * (len(rows) // 2 - 1)
        assert [metric["holdfastLoads"] for metric in metrics] == part * 2


@pytest.mark.parametrize(
    "name", ["aggregation-update", pytest.param("join-full-append", marks=pytest.mark.full)]
)
def test_a_store_that_spark_closes_goes_on_for_the_task_that_has_it(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    expected = rows_of("rocksdb", name, spark, tmp_path / "rocksdb", {})
    stores: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    over = Event()

    def close_all() -> int:
        times = 0
        while not over.is_set():
            stores.stop()
            times += 1
        return times

    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(close_all)
        try:
            rows = rows_of("holdfast", name, spark, tmp_path / "holdfast", {})
        finally:
            over.set()
        assert closing.result() > 100
    assert rows == expected


@pytest.mark.full
@pytest.mark.usefixtures("no_maintenance")
@pytest.mark.parametrize("keeping", [UNLOADED, in_memory(0)], ids=["unloaded", "memory-0"])
def test_stores_that_keep_nothing_in_memory_need_no_old_files(
    keeping: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    wanted = {
        **keeping,
        "spark.sql.streaming.minBatchesToRetain": "2",
        # Every segment fills a file, so that files stand for segments.
        STATE + "holdfast.maxFileBytes": "1",
    }
    case = SQL_CASES["aggregation-update"]
    with settings(spark, wanted):
        run(
            spark,
            inputs={"events": [rows[:20] for rows in events(batches=60)]},
            query=case.query,
            mode=case.mode,
            folder=tmp_path,
        )
    deadline = time.monotonic() + 30
    while len(merged_files(tmp_path / "checkpoint")) > 40 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(merged_files(tmp_path / "checkpoint")) <= 40
