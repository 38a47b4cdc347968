"""One micro-batch of ``groupBy(key).count()`` under pytest-benchmark.

Run it with ``pytest benches/spark --benchmark-save=NAME`` to follow one provider over commits.
``HOLDFAST_BENCH_PROVIDER`` selects another provider; comparing providers is the work of
``benches/run.py``, which gives each run a JVM of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.providers import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pytest_benchmark.fixture import BenchmarkFixture

PARTITIONS = 200
ROWS = 200_000
KEYS = 1_000_000
KEY_STEP = 7919
ROUNDS = 5


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    provider = os.environ.get("HOLDFAST_BENCH_PROVIDER", "holdfast")
    session = start_session(provider=provider, partitions=PARTITIONS, driver_memory="4g")
    yield session
    session.stop()


def test_one_batch(spark: SparkSession, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    source = tmp_path / "input"
    source.mkdir()
    query = (
        spark.readStream.schema("key LONG")
        .parquet(str(source))
        .groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    numbers = itertools.count()

    def add_file() -> None:
        number = next(numbers)
        rows = np.arange(number * ROWS, (number + 1) * ROWS, dtype=np.int64)
        staged = tmp_path / "staged.parquet"
        pq.write_table(pa.table({"key": rows * KEY_STEP % KEYS}), staged)
        staged.rename(source / f"part-{number:05d}.parquet")

    try:
        # The file is complete before the clock starts, and the batch is committed when it stops.
        benchmark.pedantic(  # type: ignore[no-untyped-call]
            query.processAllAvailable, setup=add_file, rounds=ROUNDS, warmup_rounds=1
        )
    finally:
        query.stop()
    last = query.lastProgress
    assert last is not None
    assert last["stateOperators"][0]["numRowsTotal"] == min((ROUNDS + 1) * ROWS, KEYS)
