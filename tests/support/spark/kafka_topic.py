"""Input of regional pipelines from a Kafka topic, whose partitions are the regions."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TOPIC = "rows"


def feed(rows: DataFrame, servers: str) -> None:
    """Append rows (region, id, key), in their order; the region's number is the partition."""
    (
        rows.coalesce(1)
        .select(
            F.substring("region", 2, 2).cast("int").alias("partition"),
            F.to_json(F.struct("id", "key")).alias("value"),
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TOPIC)
        .save()
    )


def topic_source(spark: SparkSession, servers: str, *, rows_per_batch: int) -> DataFrame:
    """Return the rows as a stream; a partition is a region."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
    )
    row = F.from_json(F.col("value").cast("string"), "id long, key long")
    region = F.format_string("r%02d", "partition").alias("region")
    return records.select(region, row.alias("row")).select("region", "row.id", "row.key")
