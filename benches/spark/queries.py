"""The measured queries: one source, one stateful operator, a sink that drops the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A prime, so that (i * KEY_STEP) mod keys meets every key once before it repeats one.
KEY_STEP = 7919

#: The columns of every source.
SCHEMA = "key LONG"

_FIRST_FILE_SECONDS = 1_700_000_000


def _groupby_count(streams: Sequence[DataFrame]) -> DataFrame:
    return streams[0].groupBy("key").count()


def _drop_duplicates(streams: Sequence[DataFrame]) -> DataFrame:
    return streams[0].dropDuplicates(["key"])


def _inner_join(streams: Sequence[DataFrame]) -> DataFrame:
    left, right = streams
    return left.join(right, "key")


@dataclass(frozen=True, kw_only=True)
class Query:
    """One measured query.

    Attributes
    ----------
    build
        Makes the result from one stream per table.
    output_mode
        Spark's output mode.
    tables
        Streams it reads; they share the rows of a batch evenly.
    keeps_rows
        True if the state has every row, and not every key only.
    """

    name: str
    title: str
    build: Callable[[Sequence[DataFrame]], DataFrame]
    output_mode: str
    tables: tuple[str, ...]
    keeps_rows: bool

    def state_rows(self, *, rows: int, keys: int) -> int:
        """Return the size of the state after so many rows of all tables."""
        return rows if self.keeps_rows else min(rows, keys)


QUERIES: Mapping[str, Query] = {
    query.name: query
    for query in (
        Query(
            name="groupby-count",
            title="groupBy(key).count()",
            build=_groupby_count,
            output_mode="update",
            tables=("input",),
            keeps_rows=False,
        ),
        Query(
            name="drop-duplicates",
            title="dropDuplicates([key])",
            build=_drop_duplicates,
            output_mode="append",
            tables=("input",),
            keeps_rows=False,
        ),
        Query(
            name="inner-join",
            title="left.join(right, key), both streams",
            build=_inner_join,
            output_mode="append",
            tables=("left", "right"),
            keeps_rows=True,
        ),
    )
}


def write_input(folder: Path, query: Query, *, batches: int, rows: int, keys: int) -> None:
    """Write one parquet file per batch and table, with the column ``key`` (int64).

    Parameters
    ----------
    rows
        Rows of a batch, of all tables together.
    """
    rows_of_table = rows // len(query.tables)
    for table in query.tables:
        (folder / table).mkdir(parents=True)
        for batch in range(batches):
            numbers = np.arange(batch * rows_of_table, (batch + 1) * rows_of_table, dtype=np.int64)
            path = folder / table / f"part-{batch:05d}.parquet"
            pq.write_table(pa.table({"key": numbers * KEY_STEP % keys}), path)
            # Spark's file source takes files in the order of their modification times.
            os.utime(path, (_FIRST_FILE_SECONDS + batch, _FIRST_FILE_SECONDS + batch))
