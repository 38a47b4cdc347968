"""Queries that some rows break, each with its error, and a run of them batch by batch."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.spark.queries import STATE

ROWS = 200
#: Rows of each batch for which the queries throw.
BAD = (7, 77, 150)
SCHEMA = "id long, key long, v string, w int, t timestamp"
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: A bad row must not move the watermark.
_FUTURE = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)

CAST = "CAST_INVALID_INPUT"
ZERO = "DIVIDE_BY_ZERO"


def feed(folder: Path, batches: range, *, bad: bool) -> None:
    """Adds a file for each batch, with or without the rows that are bad."""
    folder.mkdir(exist_ok=True)
    for batch in batches:
        rows = [
            {
                "id": batch * 1000 + i,
                "key": i % 5,
                "v": "bad" if i in BAD else str(i),
                "w": 0 if i in BAD else 1,
                "t": _FUTURE if i in BAD else _START + datetime.timedelta(seconds=60 * batch + i),
            }
            for i in range(ROWS)
            if bad or i not in BAD
        ]
        types = [pa.int64(), pa.int64(), pa.string(), pa.int32(), pa.timestamp("us", "UTC")]
        names = [column.split()[0] for column in SCHEMA.split(", ")]
        schema = pa.schema(list(zip(names, types, strict=True)))
        file = folder / f"{batch:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), folder.parent / "staged")
        (folder.parent / "staged").rename(file)
        os.utime(file, times=(batch, batch))


def _cast(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", "cast(v as int) AS x")


def _named(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        "id", "cast(v as int) AS x", "regexp_extract(input_file_name(), '[^/]+$', 0) AS f"
    )


def _joined(rows: DataFrame) -> DataFrame:
    left = rows.selectExpr("id", "cast(v as int) AS x")
    right = rows.selectExpr("id AS other", "id div w AS y")
    return left.join(right, F.expr("id = other"))


def _python(rows: DataFrame) -> DataFrame:
    return rows.select("id", F.udf(lambda v: int(v), "int")("v").alias("x"))


def _pandas(rows: DataFrame) -> DataFrame:
    def numbers(v):  # type: ignore[no-untyped-def]
        return v.astype("int64")

    return rows.select("id", F.pandas_udf(numbers, "long")("v").alias("x"))


def _broadcast(rows: DataFrame) -> DataFrame:
    static = rows.sparkSession.range(5).withColumnRenamed("id", "key")
    return rows.join(F.broadcast(static), "key").selectExpr("id", "id div w AS x")


def _values(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("partition * 1000 + offset AS id", "cast(string(value) as int) AS x")


def _several(rows: DataFrame) -> DataFrame:
    return _cast(rows).mapInArrow(lambda batches: batches, "id long, x int")


#: By name: the query, its output mode, and the condition of its errors.
QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, str]] = {
    "cast": (_cast, "append", CAST),
    "division": (lambda rows: rows.selectExpr("id", "id div w AS x"), "append", ZERO),
    "index": (
        lambda rows: rows.selectExpr("id", "array(1)[if(w = 0, 5, 0)] AS x"),
        "append",
        "INVALID_ARRAY_INDEX",
    ),
    "observed": (
        lambda rows: _cast(rows).observe("seen", F.count("*").alias("rows"), F.sum("x").alias("x")),
        "append",
        CAST,
    ),
    "filter": (lambda rows: rows.where("cast(v as int) % 2 = 0").select("id"), "append", CAST),
    "explode": (
        lambda rows: rows.selectExpr("id", "explode(sequence(1, 1 + cast(v as int) % 3)) AS x"),
        "append",
        CAST,
    ),
    "union": (lambda rows: _cast(rows).union(_cast(rows.where("id % 2 = 0"))), "append", CAST),
    "broadcast": (_broadcast, "append", ZERO),
    "counts": (
        lambda rows: rows.groupBy("key").agg(
            F.count("*").alias("n"), F.sum(F.expr("cast(v as int)")).alias("x")
        ),
        "complete",
        CAST,
    ),
    "windows": (
        lambda rows: (
            rows.selectExpr("t", "cast(v as int) AS x")
            .withWatermark("t", "10 seconds")
            .groupBy(F.window("t", "1 minute"))
            .agg(F.sum("x").alias("x"))
            .selectExpr("cast(window.start as long) AS begin", "x")
        ),
        "append",
        CAST,
    ),
    "distinct": (
        lambda rows: rows.selectExpr("cast(v as int) AS x").dropDuplicates(["x"]),
        "append",
        CAST,
    ),
    "distinct within a watermark": (
        lambda rows: (
            rows.selectExpr("t", "cast(v as int) % 50 AS x")
            .withWatermark("t", "10 seconds")
            .dropDuplicatesWithinWatermark(["x"])
            .select("x")
        ),
        "append",
        CAST,
    ),
    "join": (_joined, "append", CAST),
    "tried": (lambda rows: rows.selectExpr("id", "try_cast(v as int) AS x"), "append", CAST),
    "named": (_named, "append", CAST),
    "values": (_values, "append", CAST),
    "several rows": (_several, "append", CAST),
    "python": (_python, "append", "ValueError"),
    "pandas": (_pandas, "append", "ValueError"),
}


def repaired(rows: DataFrame) -> DataFrame:
    """The rows as a repaired program reads them: it throws for none."""
    return rows.withColumns({"v": F.expr("if(v = 'bad', '0', v)"), "w": F.expr("if(w = 0, 1, w)")})


def broken(rows: DataFrame) -> DataFrame:
    """The rows as a program reads them that throws for one row more."""
    return rows.withColumns(
        {"v": F.expr("if(id % 1000 = 8, 'bad', v)"), "w": F.expr("if(id % 1000 = 8, 0, w)")}
    )


def unchanged(rows: DataFrame) -> DataFrame:
    return rows


PROGRAMS = {"first": unchanged, "repaired": repaired, "broken": broken}


def topic(spark: SparkSession, servers: str) -> DataFrame:
    """The rows of a topic, in batches."""
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return (
        rows.option("subscribe", "bad")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
    )


def run(
    spark: SparkSession,
    folder: Path,
    query: str,
    *,
    sink: str = "parquet",
    source: str = "parquet",
    files_per_batch: int = 1,
    aside: bool = True,
    change: Callable[[DataFrame], DataFrame] = unchanged,
    settings: Mapping[str, str] | None = None,
    servers: str | None = None,
) -> list[dict[str, Any]]:
    """Runs the query on all files, a batch for each; returns the progress of its batches.

    With ``servers`` the rows are texts in the topic ``bad`` of Kafka, in the column ``value``.
    """
    defaults = {"badRowsMax": "10000", "isolateFailures": "false"}
    for name, value in (defaults | dict(settings or {})).items():
        spark.conf.set(f"{STATE}holdfast.{name}", value)
    spark.conf.set(f"{STATE}holdfast.badRows", "dead-letter" if aside else "fail")
    spark.conf.set(f"{STATE}holdfast.deadLetters", str(folder / "dead"))
    function, mode, _ = QUERIES[query]
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch)
    rows = topic(spark, servers) if servers else files.format(source).load(str(folder / "in"))
    writer = (
        function(change(rows))
        .writeStream.outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    if sink == "foreach batch" or mode == "complete":

        def write(batch: DataFrame, number: int) -> None:
            for output in ("out", "again"):
                part = "" if mode == "complete" else f"/batch={number}"
                batch.write.mode("overwrite").parquet(f"{folder}/{output}{part}")

        running = writer.foreachBatch(write).start()
    else:
        running = writer.format(sink).start(str(folder / "out"))
    running.awaitTermination()
    return [json.loads(one.json) for one in running.recentProgress]


def letters(dead: Path) -> list[dict[str, Any]]:
    """All dead letters of one query or of several, in the order of batches and rows."""
    rows: list[dict[str, Any]] = []
    for file in dead.rglob("*.parquet"):
        rows += pq.read_table(file).to_pylist()
    return sorted(rows, key=lambda row: (row["source"], row["batch"], row["row"].get("id", 0)))


def bad_ids(batches: Iterable[int]) -> list[int]:
    """The ids of the rows that are bad."""
    return [batch * 1000 + i for batch in batches for i in BAD]
