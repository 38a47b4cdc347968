"""Exchanges that connect regions are found before a stream is started and in each batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.regions.runners.spark.plan import Exchange, batch_exchanges, planned_exchanges
from support.spark.queries import settings, source, write_batch

Query = Callable[[DataFrame, DataFrame], DataFrame]

NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
BY_KEY = "Exchange hashpartitioning(k, 4), "

# Query, settings, what is planned, what a batch has. The static table is `small`.
CASES: dict[str, tuple[Query, dict[str, str], list[str], list[str]]] = {
    "select, filter, withColumn": (
        lambda stream, _: stream.select("k", "v").filter("v > 1").withColumn("x", F.lit(1)),
        {},
        [],
        [],
    ),
    "coalesce": (lambda stream, _: stream.coalesce(1), {}, [], []),
    "repartition": (
        lambda stream, _: stream.repartition("k"),
        {},
        [BY_KEY + "REPARTITION_BY_COL"],
        [BY_KEY + "REPARTITION_BY_COL"],
    ),
    "groupBy": (
        lambda stream, _: stream.groupBy("k").count(),
        {},
        [BY_KEY + "REQUIRED_BY_STATEFUL_OPERATOR"],
        [BY_KEY + "REQUIRED_BY_STATEFUL_OPERATOR"],
    ),
    "groupBy, orderBy": (
        lambda stream, _: stream.groupBy("k").count().orderBy("k"),
        {},
        [
            "Exchange rangepartitioning(k ASC NULLS FIRST, 4), ENSURE_REQUIREMENTS",
            BY_KEY + "REQUIRED_BY_STATEFUL_OPERATOR",
        ],
        [
            "Exchange rangepartitioning(k ASC NULLS FIRST, 4), ENSURE_REQUIREMENTS",
            BY_KEY + "REQUIRED_BY_STATEFUL_OPERATOR",
        ],
    ),
    "join with a broadcast table": (
        lambda stream, small: stream.join(F.broadcast(small), "k"),
        {},
        [],
        [],
    ),
    "join with one table twice": (
        lambda stream, small: stream.join(F.broadcast(small), "k").join(
            F.broadcast(small.withColumnRenamed("k", "v")), "v"
        ),
        {},
        [],
        [],
    ),
    "join with a table that was aggregated and is broadcast": (
        lambda stream, small: stream.join(F.broadcast(small.groupBy("k").count()), "k"),
        {},
        [],
        [],
    ),
    "join by a shuffle": (
        lambda stream, small: stream.join(small.hint("merge"), "k"),
        NO_BROADCAST,
        [BY_KEY + "ENSURE_REQUIREMENTS"],
        [BY_KEY + "ENSURE_REQUIREMENTS"],
    ),
    "join by broadcasting the stream": (
        lambda stream, small: F.broadcast(stream).join(small, "k"),
        {},
        ["BroadcastExchange HashedRelationBroadcastMode"],
        ["BroadcastExchange HashedRelationBroadcastMode"],
    ),
    # Before the start Spark takes the stream for endless; the batch is smaller than the table.
    "join with a table that is larger than the batch": (
        lambda stream, _: stream.join(stream.sparkSession.range(2_000_000).toDF("k"), "k"),
        {},
        [BY_KEY + "ENSURE_REQUIREMENTS"],
        ["BroadcastExchange HashedRelationBroadcastMode"],
    ),
    "product with a table": (
        lambda stream, small: stream.crossJoin(small.withColumnRenamed("k", "other")),
        NO_BROADCAST,
        ["CartesianProduct"],
        ["CartesianProduct"],
    ),
}


ADAPTIVE = ["repartition", "groupBy", "join by a shuffle", "join with a broadcast table"]


@pytest.mark.parametrize(
    ("case", "adaptive"),
    [*((case, "false") for case in CASES), *((case, "true") for case in ADAPTIVE)],
)
def test_exchanges_of_the_stream_are_found_and_others_are_not(
    spark: SparkSession, tmp_path: Path, case: str, adaptive: str
) -> None:
    query, conf, planned, executed = CASES[case]
    (tmp_path / "in").mkdir()
    write_batch(tmp_path / "in", 0, [{"k": n % 3, "v": n} for n in range(10)])
    small = spark.range(5).withColumnRenamed("id", "k").withColumn("w", F.lit(1))
    found: list[list[Exchange]] = []

    def look(batch: DataFrame, _: int) -> None:
        found.append(batch_exchanges(batch, session=spark))
        batch.write.format("noop").mode("overwrite").save()

    with settings(spark, {"spark.sql.adaptive.enabled": adaptive, **conf}):
        frame = query(source(spark, tmp_path / "in"), small)
        found.append(planned_exchanges(frame))
        frame.writeStream.outputMode("complete" if "groupBy," in case else "update").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).trigger(availableNow=True).foreachBatch(look).start().awaitTermination()
    texts = [[exchange.description.split("(List")[0] for exchange in one] for one in found]
    assert texts == [planned, executed]
    assert all(exchange.description.startswith(exchange.name) for one in found for exchange in one)


def test_a_static_frame_is_no_stream(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="expected a streaming DataFrame"):
        planned_exchanges(spark.range(1))
    with pytest.raises(ValueError, match="expected a batch in foreachBatch"):
        batch_exchanges(spark.range(1), session=spark)
