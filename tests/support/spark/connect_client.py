"""A client of a Spark Connect server, which knows nothing of Holdfast: three stateful queries.

``connect_client.py URL FOLDER`` runs them over the files in ``FOLDER/input`` to the end, and prints
the rows as JSON. While ``FOLDER/control/block`` exists, the first query stops in the middle of the
batch with the key ``stop``, to be killed there.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

SCHEMA = "key string, value long"


class Total(StatefulProcessor):
    """The sum of the values of a key so far."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(  # noqa: N802 - as in PySpark
        self, key: Any, rows: Iterator[Row], timers: Any
    ) -> Iterator[Row]:
        before = self.total.get()[0] if self.total.exists() else 0
        total = before + sum(row.value for row in rows)
        self.total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        pass


def stopping(
    control: Path,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that stops at the key ``stop``."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if (control / "block").exists() and "stop" in batch.column("key").to_pylist():
                (control / "blocked").touch()
                while True:
                    time.sleep(0.05)
            yield batch

    return pass_on


def drain(rows: DataFrame, folder: Path, name: str) -> list[list[Any]]:
    """Run a query in append mode until its input is used up; returns all rows of its output."""
    output = str(folder / name)
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .trigger(availableNow=True)
        .start(output)
    )
    query.awaitTermination()
    spark: SparkSession = rows.sparkSession
    return sorted(list(row) for row in spark.read.parquet(output).collect())


def main() -> None:
    url, folder = sys.argv[1], Path(sys.argv[2])
    assert importlib.util.find_spec("holdfast") is None, "a client needs no Holdfast"
    spark = SparkSession.builder.remote(url).getOrCreate()
    events = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "input"))
    )
    found = {
        "distinct": drain(events.dropDuplicates(["key"]).select("key"), folder, "distinct"),
        "totals": drain(
            events.groupBy("key").transformWithState(
                Total(), "key string, total long", "Append", "None"
            ),
            folder,
            "totals",
        ),
    }
    counted = events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("s"))
    query = (
        counted.mapInArrow(stopping(folder / "control"), "key string, n long, s long")
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("counts")
        .option("checkpointLocation", str(folder / "checkpoints" / "counts"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["counts"] = sorted(list(row) for row in spark.table("counts").collect())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
