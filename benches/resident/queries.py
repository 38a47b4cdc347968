"""The operators whose state is looked at: sources, one operator, a sink that drops rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resident.inputs import (
    ROWS_OF_FEW,
    ROWS_OF_GROUP,
    Expected,
    FirstRows,
    Pairs,
    PairsWithFew,
    Totals,
    TotalsOfGroups,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Query:
    """One operator over large state.

    Attributes
    ----------
    build
        Makes the result, which has a column ``check``, from one stream per table.
    expected
        Makes what says how its rows must be.
    fill_keys
        Keys of a batch that fills the state.
    """

    name: str
    title: str
    build: Callable[[Sequence[DataFrame]], DataFrame]
    expected: Callable[[], Expected]
    output_mode: str
    tables: tuple[str, ...]
    fill_keys: int


def shuffled(streams: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all streams behind a shuffle, without state."""
    rows = streams[0]
    for stream in streams[1:]:
        rows = rows.union(stream)
    return rows.repartition("number").withColumn("check", rows["number"])


def shuffled_to_python(streams: Sequence[DataFrame]) -> DataFrame:
    """Return the same rows after Python workers had them."""
    from resident.processor import as_they_are

    rows = shuffled(streams)
    return rows.mapInArrow(as_they_are, rows.schema)


def _group_by(streams: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as sf

    # Thirteen numbers of 8 bytes: with the bits that say which are null, a row of 104 to 112 bytes.
    grouped = (
        streams[0]
        .groupBy("number")
        .agg(
            sf.count("*").alias("rows"),
            sf.sum("amount").alias("total"),
            sf.min("amount"),
            sf.max("amount"),
            sf.avg("amount"),
            sf.stddev("amount"),
            sf.skewness("amount"),
        )
    )
    return grouped.withColumn("check", grouped["rows"] + grouped["total"])


def _drop_duplicates(streams: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as sf

    # 40 digits, as what names an event often has.
    named = streams[0].withColumn("id", sf.sha1(sf.col("number").cast("string")))
    return named.dropDuplicates(["id"]).withColumn("check", sf.col("number"))


def _inner_join(streams: Sequence[DataFrame]) -> DataFrame:
    left, right = streams
    right = right.withColumnRenamed("amount", "other")
    joined = left.join(right, "number")
    return joined.withColumn("check", joined["amount"] + joined["other"])


def _join_with_few(streams: Sequence[DataFrame]) -> DataFrame:
    left, right = streams
    # Spark would apply a condition on the number to both sides.
    return _inner_join((left, right.where(right["amount"] % ROWS_OF_FEW == 0)))


def _in_groups(stream: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    return stream.withColumn("number", sf.floor(sf.col("number") / ROWS_OF_GROUP))


def _transform_with_lists(streams: Sequence[DataFrame]) -> DataFrame:
    from resident.processor import OUTPUT, Histories

    transformed = (
        _in_groups(streams[0])
        .groupBy("number")
        .transformWithState(
            Histories(), outputStructType=OUTPUT, outputMode="Update", timeMode="None"
        )
    )
    return transformed.withColumn("check", transformed["rows"] + transformed["total"])


def _transform_with_lists_on_jvm(streams: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    from resident.processor import NOTE_BYTES

    rows = _in_groups(streams[0])
    # Its class is on the class path of the suite `backfill`.
    jvm: Any = rows.sparkSession._jvm
    transformed = DataFrame(
        jvm.io.holdfast.bench.Histories.of(rows._jdf, NOTE_BYTES), rows.sparkSession
    )
    return transformed.withColumn("check", transformed["rows"] + transformed["total"])


def _transform_with_state(streams: Sequence[DataFrame]) -> DataFrame:
    from resident.processor import OUTPUT, Accounts

    transformed = (
        streams[0]
        .groupBy("number")
        .transformWithState(
            Accounts(),
            outputStructType=OUTPUT,
            outputMode="Update",
            timeMode="None",
        )
    )
    return transformed.withColumn("check", transformed["rows"] + transformed["total"])


QUERIES: Mapping[str, Query] = {
    query.name: query
    for query in (
        Query(
            name="group-by",
            title="groupBy(number) with count, sum, least, most, mean, deviation and skewness",
            build=_group_by,
            expected=Totals,
            output_mode="update",
            tables=("input",),
            fill_keys=400_000,
        ),
        Query(
            name="drop-duplicates",
            title="dropDuplicates of ids of 40 letters",
            build=_drop_duplicates,
            expected=FirstRows,
            output_mode="append",
            tables=("input",),
            fill_keys=500_000,
        ),
        Query(
            name="inner-join",
            title="left.join(right, number), both streams without a watermark",
            build=_inner_join,
            expected=Pairs,
            output_mode="append",
            tables=("left", "right"),
            fill_keys=150_000,
        ),
        Query(
            name="transform-with-state",
            title="transformWithState in Python, a value state for each number",
            build=_transform_with_state,
            expected=Totals,
            output_mode="update",
            tables=("input",),
            fill_keys=100_000,
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """A query whose first batch is larger than memory.

    Attributes
    ----------
    rows
        Rows of that batch, in each table.
    without_state
        Makes the query that has the same rows and no state.
    """

    rows: int
    without_state: Callable[[Sequence[DataFrame]], DataFrame] = shuffled


BACKFILLS: Mapping[str, Backfill] = {
    "group-by": Backfill(rows=20_000_000),
    "drop-duplicates": Backfill(rows=20_000_000),
    "join-with-few": Backfill(rows=10_000_000),
    "transform-with-lists": Backfill(rows=2_000_000, without_state=shuffled_to_python),
    "transform-with-lists-on-jvm": Backfill(rows=2_000_000),
}

ALL_QUERIES: Mapping[str, Query] = {
    **QUERIES,
    "join-with-few": Query(
        name="join-with-few",
        title=f"left.join(right, number), of which right has one row of {ROWS_OF_FEW}",
        build=_join_with_few,
        expected=PairsWithFew,
        output_mode="append",
        tables=("left", "right"),
        fill_keys=150_000,
    ),
    "transform-with-lists": Query(
        name="transform-with-lists",
        title=f"transformWithState in Python, a list of {ROWS_OF_GROUP} rows for each key",
        build=_transform_with_lists,
        expected=TotalsOfGroups,
        output_mode="update",
        tables=("input",),
        fill_keys=100_000,
    ),
    "transform-with-lists-on-jvm": Query(
        name="transform-with-lists-on-jvm",
        title=f"transformWithState in Java, a list of {ROWS_OF_GROUP} rows for each key",
        build=_transform_with_lists_on_jvm,
        expected=TotalsOfGroups,
        output_mode="update",
        tables=("input",),
        fill_keys=100_000,
    ),
}
