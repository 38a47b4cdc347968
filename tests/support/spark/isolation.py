"""Queries with bad records, and sinks that keep the rows of each batch."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import holdfast
from support.spark.java_side import instance
from support.spark.queries import source, write_batch
from support.spark.typed_rows import VALUES

#: Keys that are no numbers, in one partition of four, and their batches.
BAD = {"bad": (2, 4, 12), "worse": (3,)}
BAD_KEYS = "key IN ('bad', 'worse')"
PARTITIONS = 4
START = datetime(2026, 1, 1, tzinfo=UTC)
#: In the error of a query that used up its input and has pending rows.
ENDS_PARKED = "The query ends, and rows are parked"

#: A program's number of a key: broken, half repaired, and repaired.
CASTS = {
    "bad": "CAST(key AS INT)",
    "half": "CAST(nullif(key, 'bad') AS INT)",
    "good": "try_cast(key AS INT)",
    # One of them fails only in its last batch.
    "late": "CAST(if(count > 4, key, nullif(key, 'bad')) AS INT)",
}
#: Variable with the file that `never_done` makes.
TRIED = "HOLDFAST_TESTS_TRIED"
#: Keys that functions of each program fail for.
FAILING = {"bad": ("bad", "worse"), "half": ("worse",), "good": ()}


def rows_of(batch: int) -> list[dict[str, Any]]:
    """A minute of events; each batch is a minute later. A few rows are too late."""
    keys = [str((batch * 7 + i) % 23) for i in range(40)]
    keys += [key for key, batches in BAD.items() if batch in batches for _ in range(2)]
    rows = [
        {"key": key, "at": START + timedelta(minutes=batch, seconds=i)}
        for i, key in enumerate(keys)
    ]
    late = START + timedelta(minutes=batch - 3)
    return rows + [{"key": str(i), "at": late} for i in range(4)]


def wide_rows_of(batch: int) -> list[dict[str, Any]]:
    """Rows for hundreds of partitions; one key is bad from batch 2 on."""
    keys = [str((batch * 7 + i) % 997) for i in range(600)]
    return [{"key": key, "at": START} for key in [*keys, *(["bad"] * (batch >= 2))]]


def feed(folder: Path, batches: range, *, wide: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        write_batch(folder, batch, wide_rows_of(batch) if wide else rows_of(batch))


def counts(events: DataFrame, program: str) -> DataFrame:
    return _number(events.groupBy("key").count(), program)


def never_shuffled(events: DataFrame, program: str) -> DataFrame:
    """Like `counts`, but no task before the shuffle ends."""
    slept = "java_method('java.lang.Thread', 'sleep', 240000L) IS NOT NULL"
    return counts(events.where(slept), program)


def never_done(events: DataFrame, program: str) -> DataFrame:
    """Like `counts`, but the task of a bad key does not end. It makes a file first."""

    def stop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if set(FAILING[program]) & set(batch.column("key").to_pylist()):
                Path(os.environ[TRIED]).touch()
                time.sleep(240)
            yield batch

    counted = events.groupBy("key").count()
    return counted.mapInArrow(stop, counted.schema)


def windows(events: DataFrame, program: str) -> DataFrame:
    window = F.window("at", "1 minute").alias("w")
    counted = events.withWatermark("at", "1 minute").groupBy(window, "key").count()
    return _number(counted, program)


def sessions(events: DataFrame, program: str) -> DataFrame:
    window = F.session_window("at", "30 seconds").alias("w")
    counted = events.withWatermark("at", "1 minute").groupBy(window, "key").count()
    return _number(counted, program)


def distinct(events: DataFrame, program: str) -> DataFrame:
    return _number(events.dropDuplicates(["key"]), program).select("key", "number")


def distinct_within(events: DataFrame, program: str) -> DataFrame:
    lately = events.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["key"])
    return _number(lately, program).select("key", "number")


def typed(events: DataFrame, program: str) -> DataFrame:
    """Like `distinct`, with a value of each type of Spark in every row."""
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in VALUES}
    every = [f"{value} AS {quoted[name]}" for name, (value, _, _) in VALUES.items()]
    rows = _number(events.selectExpr("key", *every).dropDuplicates(["key"]), program)
    # All columns are read after the shuffle, so all are shuffled.
    return rows.select("key", "number", F.length(F.to_json(F.struct(*quoted.values()))))


def functions(events: DataFrame, program: str) -> DataFrame:
    """The function with state fails by itself."""

    def total(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        if key[0] in FAILING[program]:
            raise ValueError(key[0])
        number = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((number,))
        yield pd.DataFrame({"key": [key[0]], "n": [number]})

    return events.groupBy("key").applyInPandasWithState(
        total, "key string, n long", "n long", "update", "NoTimeout"
    )


def deadly(events: DataFrame, program: str) -> DataFrame:
    """An executor dies."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if set(FAILING[program]) & set(batch.column("key").to_pylist()):
                process = os.getpid()
                while b"CoarseGrainedExecutor" not in Path(f"/proc/{process}/cmdline").read_bytes():
                    process = int(
                        Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[1]
                    )
                os.kill(process, signal.SIGKILL)
                signal.pause()
            yield batch

    counted = events.groupBy("key").count()
    return counted.mapInArrow(pass_on, counted.schema)


def slow(events: DataFrame, program: str) -> DataFrame:
    """The task of a bad key takes so long that it is started twice."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if set(FAILING[program]) & set(batch.column("key").to_pylist()):
                time.sleep(2)
                raise ValueError("a bad key")
            yield batch

    counted = events.groupBy("key").count()
    return counted.mapInArrow(pass_on, counted.schema)


def hungry(events: DataFrame, program: str) -> DataFrame:
    """An executor runs out of memory."""
    bad = F.col("key").isin(*FAILING[program]) if FAILING[program] else F.lit(False)
    much = F.size(F.sequence(F.lit(0).cast("long"), F.length("key") + F.lit(400_000_000)))
    return events.groupBy("key").count().select("key", "count", F.when(bad, much).alias("much"))


def joined(events: DataFrame, program: str) -> DataFrame:
    """Rows without a partner get nulls after the watermark."""
    left = events.withWatermark("at", "1 minute")
    right = events.select(F.col("key").alias("other"), F.col("at").alias("then"))
    right = right.where("second(then) % 3 = 0").withWatermark("then", "1 minute")
    near = F.expr("key = other AND then BETWEEN at AND at + INTERVAL 20 SECONDS")
    pairs = left.join(right, near, "left_outer").select(
        "key", F.col("at").cast("long").alias("at"), F.col("then").cast("long").alias("then")
    )
    return _number(pairs, program)


class Total(StatefulProcessor):
    """Counts the rows of each key."""

    def __init__(self, failing: tuple[str, ...]) -> None:
        self.failing = failing

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        if key[0] in self.failing:
            raise ValueError(key[0])
        before = self.total.get()[0] if self.total.exists() else 0
        number = before + sum(1 for _ in rows)
        self.total.update((number,))
        yield Row(key=key[0], n=number)

    def close(self) -> None:
        pass


def transformed(events: DataFrame, program: str) -> DataFrame:
    return events.groupBy("key").transformWithState(
        Total(FAILING[program]), "key string, n long", "update", "None"
    )


def on_the_jvm(events: DataFrame, build: Callable[[Any, Any], Any], program: str) -> DataFrame:
    """A query in Java, which adds up or lists a value of each row."""
    spark = events.sparkSession
    rows = events.select("key", F.second("at").cast("long").alias("value"))
    return _number(DataFrame(build(spark, rows._jdf), spark), program)


def jvm_functions(events: DataFrame, program: str) -> DataFrame:
    def build(spark: SparkSession, rows: Any) -> Any:
        return instance(spark, "GroupStateJob").flatMap(rows, "update", "NoTimeout")

    return on_the_jvm(events, build, program)


def jvm_transformed(events: DataFrame, program: str) -> DataFrame:
    def build(spark: SparkSession, rows: Any) -> Any:
        return instance(spark, "CountingJob").apply(rows)

    return on_the_jvm(events, build, program)


def _number(frame: DataFrame, program: str) -> DataFrame:
    number = F.expr(CASTS[program]).alias("number")
    if "w" in frame.columns:
        return frame.select("key", number, "count", F.col("w.start").cast("long").alias("w"))
    return frame.withColumn("number", number)


#: By name, a query and its output mode.
QUERIES = {
    "counts": (counts, "update"),
    "never_shuffled": (never_shuffled, "update"),
    "never_done": (never_done, "update"),
    "windows": (windows, "append"),
    "windows_update": (windows, "update"),
    "sessions": (sessions, "append"),
    "distinct": (distinct, "append"),
    "typed": (typed, "append"),
    "distinct_within": (distinct_within, "append"),
    "functions": (functions, "update"),
    "joined": (joined, "append"),
    "transformed": (transformed, "update"),
    "jvm_functions": (jvm_functions, "update"),
    "jvm_transformed": (jvm_transformed, "update"),
    "deadly": (deadly, "update"),
    "hungry": (hungry, "update"),
    "slow": (slow, "update"),
}
#: More options for readers of state.
STORES = {
    "joined": ({"joinSide": "left"}, {"joinSide": "right"}),
    "transformed": ({"stateVarName": "total"},),
    "jvm_transformed": ({"stateVarName": "count"}, {"stateVarName": "values"}),
}


def partition_of(
    spark: SparkSession, keys: set[str], partitions: int = PARTITIONS
) -> dict[str, int]:
    """The state partition of each key of `counts`."""
    frame = spark.createDataFrame([(key,) for key in sorted(keys)], "key string")
    found = frame.selectExpr("key", f"pmod(hash(key), {partitions}) AS p").collect()
    return {row.key: row.p for row in found}


def written(folder: Path) -> dict[int, list[list[Any]]]:
    """Rows by batch, from `write_rows`."""
    return {
        int(file.stem): sorted(json.loads(file.read_text()), key=str)
        for file in folder.glob("*.json")
    }


def write_rows(folder: Path, batch: int, rows: list[Row]) -> None:
    """Keeps the rows of a batch. A repeated batch replaces them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{batch}.json").write_text(json.dumps([list(row) for row in rows]))


def table(folder: Path) -> pa.Table:
    """The rows of a Delta table."""
    return pq.read_table(DeltaTable(str(folder)).file_uris())


def merge_rows(folder: Path, rows: pa.Table) -> None:
    """Merges rows into a Delta table by their key, of which each has one."""
    assert len(rows) == len(rows.column("key").unique())
    merger = DeltaTable.create(str(folder), rows.schema, mode="ignore").merge(
        rows, "old.key = new.key", source_alias="new", target_alias="old"
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


class _Rows(WriterCommitMessage):
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows


class _Writer(DataSourceStreamWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return _Rows([Row(*row) for row in iterator])

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        rows = [list(row) for message in messages for row in message.rows]
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{batchId}.json").write_text(json.dumps(rows))

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing is written before the commit."""


class RowsSource(DataSource):
    """A sink of Spark's second interface."""

    @classmethod
    def name(cls) -> str:
        return "kept_rows"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return _Writer(self.options["path"])


def is_kafka(sink: str) -> bool:
    """True if a sink is the address of a broker."""
    return ":" in sink


def run(
    spark: SparkSession,
    folder: Path,
    *,
    query: str,
    program: str,
    sink: str = "foreach",
    checkpoint: str | None = None,
    once: bool = False,
    may_park: bool = True,
    after: Callable[[int], None] = lambda batch: None,
) -> Any:
    """Runs the query until its input is used up, or for one batch; returns it, or raises its error.

    With ``may_park`` rows may be pending in the end. ``after`` is called in ``foreachBatch`` after
    the write.
    """
    # Python workers do not find this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    output = folder / "output"
    made, mode = QUERIES[query]
    frame = made(source(spark, folder / "input"), program)
    if is_kafka(sink):
        frame = frame.select(F.to_json(F.struct("*")).alias("value"))

    def keep(batch: DataFrame, number: int) -> None:
        write_rows(output, number, batch.collect())
        after(number)

    def merge(batch: DataFrame, number: int) -> None:
        for rows in holdfast.passes(batch):
            merge_rows(output, rows.toArrow())
            after(number)

    writer = frame.writeStream.outputMode(mode).option(
        "checkpointLocation", checkpoint or str(folder / "checkpoint")
    )
    writer = writer.trigger(once=True) if once else writer.trigger(availableNow=True)
    if sink == "foreach":
        writer = writer.foreachBatch(keep)
    elif sink == "delta":
        writer = writer.foreachBatch(merge)
    elif is_kafka(sink):
        writer = writer.format("kafka").option("topic", folder.name)
        writer = writer.option("kafka.bootstrap.servers", sink)
    elif sink == "v2":
        spark.dataSource.register(RowsSource)
        writer = writer.format("kept_rows").option("path", str(output))
    else:
        writer = writer.format("parquet").option("path", str(output))
    started = writer.start()
    try:
        started.awaitTermination()
    except StreamingQueryException as error:
        if not (may_park and ENDS_PARKED in str(error)):
            raise
    return started


def results(spark: SparkSession, folder: Path, sink: str) -> list[list[Any]]:
    """All rows of the sink, from any batch."""
    if sink == "delta":
        rows = [list(row.values()) for row in table(folder / "output").to_pylist()]
    elif is_kafka(sink):
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", sink)
        sent = reader.option("subscribe", folder.name).load().selectExpr("CAST(value AS STRING)")
        rows = [[row.value] for row in sent.collect()]
    elif sink == "parquet":
        rows = [list(row) for row in spark.read.parquet(str(folder / "output")).collect()]
    else:
        rows = [row for batch in written(folder / "output").values() for row in batch]
    return sorted(rows, key=str)


def state(
    spark: SparkSession, folder: Path, query: str, checkpoint: str | None = None
) -> list[str]:
    """The keys and values of the state after the last batch."""
    rows = []
    for options in STORES.get(query, ({},)):
        reader = spark.read.format("statestore").options(**options)
        rows += reader.load(checkpoint or str(folder / "checkpoint")).collect()
    return sorted(map(str, rows))
