"""Passes of a batch that catches up with pending rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast._sessions import is_connect, require_jar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_COLUMN: Final = "__holdfast_pass"


def passes(batch: DataFrame) -> Iterator[DataFrame]:
    """Yield the rows of a batch in parts that have at most one row of each key in update mode.

    A partition that was parked catches up in a later batch. That batch has the rows of several
    batches, and in update mode several rows of one key. A ``MERGE`` takes one row of a key.
    There is a part for each batch whose rows are in it, oldest first. Almost every batch has one
    part, which is the batch itself.

    Use each part before the next one. If a batch runs again, its parts are the same. The batch is
    cached while its parts are used.

    Parameters
    ----------
    batch : pyspark.sql.DataFrame
        The DataFrame that ``foreachBatch`` gives to its function.

    Yields
    ------
    pyspark.sql.DataFrame
        Rows with the columns of the batch.

    Raises
    ------
    pyspark.errors.IllegalArgumentException
        If `batch` is another DataFrame.
    pyspark.errors.UnsupportedOperationException
        If the query shuffles rows after its stateful operator, and pending rows are replayed.
    NotImplementedError
        If it is a DataFrame of Spark Connect.

    Examples
    --------
    >>> def upsert(batch, number):
    ...     for rows in holdfast.passes(batch):
    ...         merge(rows)
    >>> counts.writeStream.outputMode("update").foreachBatch(upsert)  # doctest: +SKIP
    """
    if is_connect(batch):
        raise NotImplementedError("passes() does not work in a session of Spark Connect")
    from pyspark.sql import DataFrame

    spark = batch.sparkSession
    require_jar(spark.sparkContext)
    jvm: Any = spark.sparkContext._jvm
    replayed = jvm.io.holdfast.spark.isolation.task.ReplayedPasses
    if not replayed.mayHave(batch._jdf):
        yield batch
        return
    numbered = DataFrame(replayed.numbered(batch._jdf, _COLUMN), spark).persist()
    try:
        found = numbered.select(_COLUMN).distinct().collect()
        for number in sorted(row[0] for row in found):
            yield numbered.where(numbered[_COLUMN] == number).drop(_COLUMN)
    finally:
        numbered.unpersist()
