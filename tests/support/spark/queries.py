"""Parts that the Spark tests share: sessions, input files, and queries run batch by batch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

import holdfast
from holdfast._spark import DEFAULT_KEY
from support.spark.minors import is_older_than
from support.spark.state_files import commit_ids

PROVIDERS = {
    "holdfast": "io.holdfast.spark.HoldfastStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
FIRST_FILE_TIME = 1_780_000_000
STATE = "spark.sql.streaming.stateStore."
CLOSING = "spark.hadoop.dfs.client.block.write.locateFollowingBlock"

# Every read of a value with a checksum is verified: by default none is.
VERIFIED = {STATE + "rowChecksum.readVerificationRatio": "1"}
CHECKSUMS = {**VERIFIED, STATE + "rowChecksum.enabled": "true"}

# Content of a base image is evicted at once, and images are written as early as possible.
EVICTING = {STATE + "holdfast.targetMemoryBytes": "1", STATE + "minDeltasForSnapshot": "1"}

#: Every source has a name, with which Spark finds its offsets: version 2 of the offset log.
NAMED = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}
if is_older_than("4.3"):
    NAMED["spark.sql.streaming.offsetLog.formatVersion"] = "2"


def builder(master: str, warehouse: Path) -> SparkSession.Builder:
    """Settings that every test session has, without Holdfast."""
    return (
        SparkSession.builder.master(master)
        .appName("holdfast-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Frequent maintenance, so that every test runs during writes of base images.
        .config(STATE + "maintenanceInterval", "500ms")
        .config(STATE + "minDeltasForSnapshot", "3")
        .config("spark.sql.warehouse.dir", str(warehouse))
        # A client that closes a file asks sooner than after 400 ms whether its last block has
        # arrived, and equally long.
        .config(f"{CLOSING}.initial.delay.ms", "10")
        .config(f"{CLOSING}.retries", "10")
    )


def configured(session: SparkSession.Builder, settings: Iterable[str]) -> SparkSession.Builder:
    """A builder with settings from ``KEY=VALUE`` arguments."""
    for setting in settings:
        key, _, value = setting.partition("=")
        session = session.config(key, value)
    return session


def local_session(warehouse: Path) -> SparkSession:
    """A ``local[2]`` session configured by :func:`holdfast.configure`."""
    session = holdfast.configure(builder("local[2]", warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def select_provider(spark: SparkSession, name: str) -> None:
    """Selects the provider for queries started later: Holdfast where users have it, as default."""
    if name == "holdfast" and spark.conf.get(DEFAULT_KEY, None) is not None:
        spark.conf.unset(STATE + "providerClass")
    else:
        spark.conf.set(STATE + "providerClass", PROVIDERS[name])
    spark.conf.set(STATE + "checkpointFormatVersion", "1" if name == "hdfs" else "2")


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the queries started inside; undone afterwards."""
    before = {key: spark.conf.get(key, None) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def unload(spark: SparkSession) -> None:
    """Ends the stores of ended queries, as maintenance does a little later.

    Until then they take memory, and Spark's own may write a snapshot.
    """
    jvm: Any = spark._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    stores = getattr(getattr(state, "StateStore$"), "MODULE$")
    # An earlier Spark stops under a lock that maintenance may wait for, both for five minutes.
    (stores.stop if spark.version >= "4.3" else stores.unloadAll)()


def write_batch(folder: Path, number: int, rows: Sequence[dict[str, Any]]) -> None:
    """Adds one file, which the streaming source reads as one micro-batch."""
    table = pa.Table.from_pylist(list(rows))
    staged = folder / f".batch-{number:05d}.parquet"
    pq.write_table(table, staged, coerce_timestamps="us")
    # The source orders files by modification time: make the order part of the test's input.
    os.utime(staged, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))
    staged.rename(folder / f"batch-{number:05d}.parquet")


# Rows of every batch, in a canonical order.
Batches = dict[int, list[tuple[Any, ...]]]


def source(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of ``folder`` as a stream, one file per micro-batch. With `NAMED` it has a name."""
    schema = spark.read.parquet(str(folder)).schema
    reader = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .option("latestFirst", "false")
    )
    if all(spark.conf.get(key, None) == value for key, value in NAMED.items()):
        reader = reader.name(folder.name)
    return reader.parquet(str(folder))


def canonical(rows: Sequence[Row | tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows as sorted tuples, so that the order of rows does not matter."""
    return sorted((tuple(row) for row in rows), key=repr)


def drain(
    frame: DataFrame, *, checkpoint: Path | str, mode: str, into: Batches, rest_s: float = 0
) -> Any:
    """Runs the query until its input is used up; returns the finished StreamingQuery.

    A batch ends ``rest_s`` seconds after its rows were put out: time for maintenance.
    """

    def keep(batch: DataFrame, batch_id: int) -> None:
        into[batch_id] = canonical(batch.collect())
        time.sleep(rest_s)

    query = (
        frame.writeStream.outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    return query


def run(
    spark: SparkSession,
    *,
    inputs: Mapping[str, Sequence[Sequence[dict[str, Any]]]],
    query: Callable[[dict[str, DataFrame]], DataFrame],
    mode: str,
    folder: Path,
    parts: int = 2,
    progress: list[dict[str, Any]] | None = None,
    rest_s: float = 0,
) -> Batches:
    """Feeds the batches of every stream in equal parts, with restarts of the query in between.

    Spark's progress of every batch is added to ``progress``; ``rest_s`` is as for :func:`drain`.
    """
    batches: Batches = {}
    count = max(len(rows) for rows in inputs.values())
    folders = {name: folder / name for name in inputs}
    for path in folders.values():
        path.mkdir(parents=True)
    for part in range(parts):
        for name, rows in inputs.items():
            for number in range(count * part // parts, count * (part + 1) // parts):
                if number < len(rows):
                    write_batch(folders[name], number, rows[number])
        frames = {name: source(spark, path) for name, path in folders.items()}
        checkpoint = folder / "checkpoint"
        done = drain(query(frames), checkpoint=checkpoint, mode=mode, into=batches, rest_s=rest_s)
        if progress is not None:
            progress += done.recentProgress
    return batches


def require_served_by(name: str, checkpoint: Path) -> None:
    """The provider of this name kept the state of a query, from its first batch to its last."""
    for offsets in (checkpoint / "offsets").glob("[0-9]*"):
        conf = json.loads(offsets.read_text().split("\n")[1])["conf"]
        assert conf[STATE + "providerClass"] == PROVIDERS[name]
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    assert batches
    for batch in batches:
        operators = commit_ids(checkpoint, batch).values()
        ids = [id_ for stores in operators for partition in stores for id_ in partition]
        assert ids
        assert {id_.startswith("hf") for id_ in ids} == {name == "holdfast"}
