"""The queries of the fault report, their input, and their rows by plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.spark.processors import Totals
from support.spark.queries import source, write_batch

Rows = list[tuple[Any, ...]]
#: The number of inputs of each source in batches.
Taken = tuple[int, ...]

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


def aggregated(before: Taken, after: Taken) -> Rows:
    """The rows of `aggregation` in a batch: the keys of its new inputs."""
    seen, new = _inputs(0, after[0]), _inputs(before[0], after[0])
    count, total = Counter(row["key"] for row in seen), _totals(seen)
    return [(key, count[key], total[key]) for key in {row["key"] for row in new}]


def joined(before: Taken, after: Taken) -> Rows:
    """The rows of `join` in a batch: pairs with a new row on some side."""
    pairs = []
    right = [
        _by_key(row for row in rows_of(other) if row["value"] < 9) for other in range(after[1])
    ]
    for number in range(after[0]):
        for other in range(after[1]):
            if number >= before[0] or other >= before[1]:
                for row in rows_of(number):
                    values = right[other].get(row["key"], [])
                    pairs += [(row["key"], row["value"], value) for value in values]
    return pairs


def transformed(before: Taken, after: Taken) -> Rows:
    """The rows of `transform_with_state` in a batch: the keys of its new inputs."""
    known = {row["key"] for row in _inputs(0, before[0])}
    total, new = _totals(_inputs(0, after[0])), _inputs(before[0], after[0])
    return [(key, total[key], key in known) for key in {row["key"] for row in new}]


def feed(folder: Path, batch: int) -> None:
    """Add the input of a batch."""
    for name in ("in", "right"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_batch(folder / "in", batch, rows_of(batch))
    write_batch(folder / "right", batch, [row for row in rows_of(batch) if row["value"] < 9])


def _inputs(first: int, end: int) -> list[dict[str, Any]]:
    return [row for number in range(first, end) for row in rows_of(number)]


def _by_key(rows: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row["value"])
    return found


def _totals(rows: list[dict[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in rows:
        total[row["key"]] += row["value"]
    return total


Query = Callable[[SparkSession, Path], DataFrame]
Expected = Callable[[Taken, Taken], Rows]

#: Query, output mode, number of sources, and expected rows of a batch, by name.
QUERIES: dict[str, tuple[Query, str, int, Expected]] = {
    "aggregation": (aggregation, "update", 1, aggregated),
    "join": (join, "append", 2, joined),
    "transformWithState": (transform_with_state, "update", 1, transformed),
}
