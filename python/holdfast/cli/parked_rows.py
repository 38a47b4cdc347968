"""Parked rows, which are bytes of Spark: a local session decodes them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast._jars import plugin_jars
from holdfast.cli import local_spark
from holdfast.regions.checkpoint.parked import ParkedPartition
from holdfast.regions.checkpoint.query_folder import STATE_FILES_FOLDER
from holdfast.regions.checkpoint.skips import ROW
from holdfast.regions.files.paths import AnyPath, absolute

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Ways to write rows to stdout.
FORMATS: Final = ("json", "arrow", "parquet")


def require_no_terminal(form: str) -> None:
    """Check that stdout can take rows in one of `FORMATS`.

    Raises
    ------
    ValueError
        If stdout is a terminal, and the format is not for one.
    """
    if form != "json" and sys.stdout.isatty():
        raise ValueError(f"--rows {form} writes bytes: send them to a file with '>'")


def write(folder: AnyPath, parked: Sequence[ParkedPartition], form: str) -> None:
    """Write the rows that wait to stdout, in one of `FORMATS`."""
    require_no_terminal(form)
    with _rows(folder, parked) as rows:
        shown = rows.drop(ROW)
        if form == "json":
            for line in _as_json(shown).toLocalIterator():
                print(line[0])
            return
        found = shown.toArrow()
    write_bytes(found, form)


def write_bytes(found: pa.Table, form: str) -> None:
    """Write rows to stdout as ``arrow`` or ``parquet``."""
    if form == "arrow":
        import pyarrow as pa

        with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as stream:
            stream.write_table(found)
        return
    import pyarrow.parquet as pq

    pq.write_table(found, sys.stdout.buffer)


def _as_json(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))


def matching(folder: AnyPath, parked: Sequence[ParkedPartition], where: str) -> pa.Table:
    """Return the rows that wait and for which an expression of Spark SQL is true.

    Raises
    ------
    ValueError
        If it is no such expression, or cannot be computed for a row.
    """
    with _rows(folder, parked) as rows:
        return selected(rows, where)


def selected(rows: DataFrame, where: str) -> pa.Table:
    """Return the rows for which an expression of Spark SQL is true.

    Raises
    ------
    ValueError
        If it is no such expression, or cannot be computed for a row.
    """
    from pyspark.errors import PySparkException

    # PySpark logs what it raises.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        return rows.where(where).toArrow()
    except PySparkException as error:
        message = str(error).splitlines()[0]
        columns = ", ".join(rows.columns)
        raise ValueError(f"--where {where!r}: {message} Columns: {columns}") from None


@contextmanager
def _rows(folder: AnyPath, parked: Sequence[ParkedPartition]) -> Iterator[DataFrame]:
    """Read the rows of all inputs, without those that were skipped, until the end of the block."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    jars = {"spark.jars": ",".join(map(str, plugin_jars()))}
    with local_spark.session("to read parked rows", jars) as spark:
        jvm: Any = spark._jvm
        segments = (absolute(folder) / STATE_FILES_FOLDER).spark_name
        found = jvm.io.holdfast.spark.isolation.ParkedRows(spark._jsparkSession, segments)
        try:
            for partition in parked:
                for one in partition.inputs:
                    found.add(
                        str(partition.operator),
                        partition.partition,
                        one.owner.store,
                        one.batch,
                        b"".join(piece.to_bytes() for piece in one.pieces),
                        ",".join(str(number) for range in one.skipped for number in range),
                    )
            sides = [DataFrame(side, spark) for side in found.frames()]
        except PySparkException as error:
            raise OSError(str(error).splitlines()[0]) from None
        rows = sides[0]
        for side in sides[1:]:
            rows = rows.unionByName(side, allowMissingColumns=True)
        yield rows
