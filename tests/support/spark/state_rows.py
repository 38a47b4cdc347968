"""Rows of state, by Spark's reader and by Arrow, in a form to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType


def of_spark(spark: SparkSession, path: Path, operator: int, batch: int, store: str) -> DataFrame:
    """The columns of keys and values by Spark's reader."""
    options: dict[str, Any] = {"operatorId": operator, "batchId": batch}
    if (path / "state" / str(operator) / "_stateSchema").exists():
        if store.startswith("$"):
            options["readRegisteredTimers"] = True
        else:
            options["stateVarName"] = store
    elif store != "default":
        options["storeName"] = store
    rows = spark.read.format("statestore").options(**options).load(str(path))
    columns: list[Column] = []
    for field in rows.drop("partition_id").schema:
        if isinstance(field.dataType, StructType):
            # Several fields may have a name, so a cast by their places gives each its own.
            places = enumerate(field.dataType)
            inner = [StructField(f"{field.name}{at}", one.dataType) for at, one in places]
            columns.append(F.col(field.name).cast(StructType(inner)).alias(field.name))
        else:
            columns.append(F.col(field.name))
    flat = rows.select(*columns)
    names = [f"{name}.*" if kind.startswith("struct") else name for name, kind in flat.dtypes]
    return flat.select(*names)


def flat(value: Any) -> Iterator[Any]:
    """The leaves of a value: Spark nests the columns of keys and values, other readers do not."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from flat(inner)
    elif isinstance(value, list) and value and isinstance(value[0], tuple):
        yield sorted(value, key=repr)  # a map, which has no order
    else:
        yield value


def sorted_rows(table: pa.Table) -> list[list[Any]]:
    columns = (column.to_pylist() for column in table.columns)
    rows = [list(flat(dict(enumerate(row)))) for row in zip(*columns, strict=True)]
    return sorted(rows, key=repr)
