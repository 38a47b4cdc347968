"""The queries of the fault report, their input, and their rows by plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.spark.processors import Totals
from support.spark.queries import source, write_batch

Rows = list[tuple[Any, ...]]

KEYS, EACH = 200, 300


def rows_of(batch: int) -> list[dict[str, Any]]:
    """The input of a batch: keys repeat within and across batches."""
    numbers = range(batch * EACH, (batch + 1) * EACH)
    return [
        {"key": f"k{n * 7 % KEYS}", "value": n * 13 % 101, "seconds": 10 * batch} for n in numbers
    ]


def aggregation(spark: SparkSession, folder: Path) -> DataFrame:
    """Count and sum by key."""
    rows = source(spark, folder / "in").groupBy("key")
    return rows.agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def join(spark: SparkSession, folder: Path) -> DataFrame:
    """Rows of two streams with the same key."""
    left = source(spark, folder / "in").select("key", "value")
    right = source(spark, folder / "right").select("key", F.col("value").alias("other"))
    return left.join(right, "key")


def transform_with_state(spark: SparkSession, folder: Path) -> DataFrame:
    """The total of each key in a value state."""
    rows = source(spark, folder / "in").groupBy("key")
    return rows.transformWithState(
        Totals(pandas=False), Totals.output, outputMode="Update", timeMode="None"
    )


def aggregated(batch: int) -> Rows:
    """The rows of `aggregation` in a batch."""
    seen = [row for number in range(batch + 1) for row in rows_of(number)]
    count, total = Counter(row["key"] for row in seen), _totals(seen)
    return [(key, count[key], total[key]) for key in {row["key"] for row in rows_of(batch)}]


def joined(batch: int) -> Rows:
    """The rows of `join` in a batch: pairs with a new row on some side."""
    right = [[row for row in rows_of(number) if row["value"] < 9] for number in range(batch + 1)]
    pairs = []
    for number in range(batch + 1):
        for other in range(batch + 1):
            if batch in (number, other):
                by_key: dict[str, list[int]] = {}
                for row in right[other]:
                    by_key.setdefault(row["key"], []).append(row["value"])
                for row in rows_of(number):
                    values = by_key.get(row["key"], [])
                    pairs += [(row["key"], row["value"], value) for value in values]
    return pairs


def transformed(batch: int) -> Rows:
    """The rows of `transform_with_state` in a batch."""
    before = [row for number in range(batch) for row in rows_of(number)]
    known, total = {row["key"] for row in before}, _totals([*before, *rows_of(batch)])
    keys = {row["key"] for row in rows_of(batch)}
    return [(key, total[key], key in known) for key in keys]


def feed(folder: Path, batch: int) -> None:
    """Add the input of a batch."""
    for name in ("in", "right"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_batch(folder / "in", batch, rows_of(batch))
    write_batch(folder / "right", batch, [row for row in rows_of(batch) if row["value"] < 9])


def _totals(rows: list[dict[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in rows:
        total[row["key"]] += row["value"]
    return total


#: Query, output mode and expected rows of a batch, by name.
QUERIES: dict[str, tuple[Callable[[SparkSession, Path], DataFrame], str, Callable[[int], Rows]]] = {
    "aggregation": (aggregation, "update", aggregated),
    "join": (join, "append", joined),
    "transformWithState": (transform_with_state, "update", transformed),
}
