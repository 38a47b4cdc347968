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
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from support.spark.java_side import instance
from support.spark.processors import Totals
from support.spark.queries import STATE

ROWS = 200
#: Rows of each batch for which the queries throw.
BAD = (0, 7, 76, 77, 78, 111, 150, 152, 198, 199)
SCHEMA = "id long, key long, v string, w int, t timestamp"
_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
#: A bad row must not move the watermark.
_FUTURE = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)

CAST = "CAST_INVALID_INPUT"
ZERO = "DIVIDE_BY_ZERO"


def feed(folder: Path, batches: range, *, bad: bool) -> None:
    """Adds a file for each batch, with or without the rows that are bad."""
    folder.mkdir(parents=True, exist_ok=True)
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


def _avro(rows: DataFrame) -> DataFrame:
    sent = F.when(F.col("v") == "bad", F.lit(b"")).otherwise(to_avro("id"))
    return rows.select("id", from_avro(sent, '"long"').alias("x"))


def _typed(rows: DataFrame) -> DataFrame:
    mapped = instance(rows.sparkSession, "TypedRows").map(rows._jdf)
    return DataFrame(mapped, rows.sparkSession)


def _group_state(rows: DataFrame) -> DataFrame:
    events = rows.selectExpr("string(key) AS key", "bigint(v) AS value")
    job = instance(rows.sparkSession, "GroupStateJob")
    return DataFrame(job.flatMap(events._jdf, "update", "NoTimeout"), rows.sparkSession)


def _transformed(rows: DataFrame) -> DataFrame:
    events = rows.selectExpr("string(key) AS key", "bigint(v) AS value", "id AS seconds")
    return events.groupBy("key").transformWithState(
        Totals(pandas=False),
        outputStructType=Totals.output,
        outputMode="Update",
        timeMode="None",
    )


def _broadcast(rows: DataFrame) -> DataFrame:
    static = rows.sparkSession.range(5).withColumnRenamed("id", "key")
    return rows.join(F.broadcast(static), "key").selectExpr("id", "id div w AS x")


def _values(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("partition * 1000 + offset AS id", "cast(string(value) as int) AS x")


def _values_joined(rows: DataFrame) -> DataFrame:
    values = _values(rows)
    return values.alias("a").join(values.alias("b"), "id").selectExpr("id", "a.x AS x")


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
    "values joined": (_values_joined, "append", CAST),
    "several rows": (_several, "append", CAST),
    "avro": (_avro, "append", "java.io.EOFException"),
    "typed": (_typed, "append", "java.lang.NumberFormatException"),
    "group state": (_group_state, "update", CAST),
    "transform with state": (_transformed, "update", CAST),
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


class Lines:
    """Writes rows as lines of JSON, a file for each partition of a batch, for ``foreach``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, partition: int, batch: int) -> bool:
        self.folder.mkdir(exist_ok=True)
        self.file = (self.folder / f"{batch}-{partition}").open("w")
        return True

    def process(self, row: Any) -> None:
        print(json.dumps(row.asDict()), file=self.file)

    def close(self, error: Exception | None) -> None:
        self.file.close()


def topic(spark: SparkSession, servers: str) -> DataFrame:
    """The rows of a topic, in batches."""
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return (
        rows.option("subscribe", "bad")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load()
    )


def write_twice(folder: Path, mode: str) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` with two actions on the same rows."""

    def write(batch: DataFrame, number: int) -> None:
        for output in ("out", "again"):
            part = "" if mode == "complete" else f"/batch={number}"
            batch.write.mode("overwrite").parquet(f"{folder}/{output}{part}")

    return write


def run(
    spark: SparkSession,
    folder: Path,
    query: str,
    *,
    sink: str | None = None,
    source: str = "parquet",
    files_per_batch: int = 1,
    aside: bool = True,
    change: Callable[[DataFrame], DataFrame] = unchanged,
    settings: Mapping[str, str] | None = None,
    servers: str | None = None,
) -> list[dict[str, Any]]:
    """Runs the query on all files, a batch for each; returns the progress of its batches.

    Without a ``sink`` the rows go to Parquet files, or to a function if they are updated. The
    source ``kafka`` has texts in the topic ``bad``, in the column ``value``; the sink has the topic
    ``out``.
    """
    defaults = {"badRowsMax": "10000", "isolateFailures": "false"}
    own = {"badRows": "dead-letter" if aside else "fail", "deadLetters": str(folder / "dead")}
    for name, value in (defaults | own | dict(settings or {})).items():
        spark.conf.set(name if "." in name else f"{STATE}holdfast.{name}", value)
    function, mode, _ = QUERIES[query]
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch)
    rows = (
        topic(spark, str(servers))
        if source == "kafka"
        else files.format(source).load(str(folder / "in"))
    )
    result = function(change(rows))
    if sink == "kafka":
        result = result.select(F.to_json(F.struct("*")).alias("value"))
    writer = (
        result.writeStream.outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    sink = sink or ("parquet" if mode == "append" else "foreach batch")
    if sink == "foreach batch":
        running = writer.foreachBatch(write_twice(folder, mode)).start()
    elif sink == "foreach":
        running = writer.foreach(Lines(folder / "out")).start()
    elif sink == "kafka":
        to = {"kafka.bootstrap.servers": str(servers), "topic": "out"}
        running = writer.format(sink).options(**to).start()
    else:
        running = writer.format(sink).start(str(folder / "out"))
    running.awaitTermination()
    return [json.loads(one.json) for one in running.recentProgress]


def output(
    spark: SparkSession, folder: Path, sink: str | None, servers: str | None
) -> list[dict[str, Any]]:
    """The rows that readers of the sink see; none before its first batch."""
    if sink == "kafka":
        rows = spark.read.format("kafka").option("kafka.bootstrap.servers", str(servers))
        texts = rows.option("subscribe", "out").load().select(F.col("value").cast("string"))
        return [json.loads(row.value) for row in texts.collect()]
    if sink == "delta":
        found: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        return found
    try:
        read = spark.read.format("json" if sink == "foreach" else "parquet").load(str(folder))
    except AnalysisException:
        return []
    return [row.asDict(recursive=True) for row in read.collect()]


def letters(dead: Path) -> list[dict[str, Any]]:
    """All dead letters of one query or of several, in the order of batches and rows."""
    rows: list[dict[str, Any]] = []
    for file in dead.rglob("*.parquet"):
        rows += pq.read_table(file).to_pylist()
    return sorted(rows, key=lambda row: (row["source"], row["batch"], row["row"].get("id", 0)))


def bad_ids(batches: Iterable[int]) -> list[int]:
    """The ids of the rows that are bad."""
    return [batch * 1000 + i for batch in batches for i in BAD]
