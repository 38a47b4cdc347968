"""The two queries of the demo. The stream and the batch computation share a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

from harness.equality import last_per_key, read_batches

#: Bound on the lateness of a row. Files never split an hour, so nothing is late.
LATENESS = "2 hours"


def delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Compute delay statistics per tail number; cancelled flights have null delays.

    Delays are whole minutes. Sums and counts are integers, and the averages divide sums of
    integers far below 2**53, so the result does not depend on the order of the rows.
    """
    from pyspark.sql import functions as sf

    return flights.groupBy("tailnum").agg(
        sf.count(sf.lit(1)).alias("flights"),
        sf.count("dep_delay").alias("departed"),
        sf.sum("dep_delay").alias("dep_delay_sum"),
        sf.max("dep_delay").alias("dep_delay_max"),
        sf.count("arr_delay").alias("arrived"),
        sf.sum("arr_delay").alias("arr_delay_sum"),
        sf.max("arr_delay").alias("arr_delay_max"),
        sf.avg("arr_delay").alias("arr_delay_avg"),
    )


def weather_join(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Join each flight with the weather at its origin in its scheduled hour.

    The watermarks let Spark forget the hours that both streams have passed.
    """
    from pyspark.sql import functions as sf

    left = flights.select(
        "time_hour", "origin", "dest", "carrier", "flight", "tailnum", "sched_dep_time",
        "dep_delay", "arr_delay",
    ).withWatermark("time_hour", LATENESS)  # fmt: skip
    right = weather.select(
        sf.col("time_hour").alias("weather_hour"),
        sf.col("origin").alias("station"),
        "temp", "wind_speed", "precip", "visib",
    ).withWatermark("weather_hour", LATENESS)  # fmt: skip
    on = (sf.col("origin") == sf.col("station")) & (sf.col("time_hour") == sf.col("weather_hour"))
    return left.join(right, on).drop("station", "weather_hour")


def _last_update_per_tailnum(batches: list[pa.Table]) -> pa.Table:
    return last_per_key(batches, key="tailnum")


def _all_rows(batches: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(batches)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of the demo.

    Attributes
    ----------
    build
        Makes the result from (flights, weather); both streams or both tables.
    output_mode
        Spark's output mode of the streaming form.
    final
        Reduces the batches in the sink to the final rows of the query.
    tables
        Names of the tables that the query reads.
    """

    name: str
    title: str
    build: Callable[[DataFrame, DataFrame], DataFrame]
    output_mode: str
    final: Callable[[list[pa.Table]], pa.Table]
    tables: tuple[str, ...]

    def final_rows(self, sink: Path) -> pa.Table:
        """Read the final rows back from the sink of a run."""
        return self.final(read_batches(sink))


QUERIES = {
    query.name: query
    for query in (
        Query(
            name="delays",
            title="delay statistics per tail number (streaming aggregation, update mode)",
            build=delays,
            output_mode="update",
            final=_last_update_per_tailnum,
            tables=("flights",),
        ),
        Query(
            name="weather",
            title="flights with the weather of their hour (stream-stream inner join)",
            build=weather_join,
            output_mode="append",
            final=_all_rows,
            tables=("flights", "weather"),
        ),
    )
}


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Stream a folder of parquet files, one file per micro-batch."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def table_of(spark: SparkSession, folder: Path) -> DataFrame:
    """Read the same folder as a table."""
    return spark.read.parquet(str(folder))
