"""Pending rows of parked partitions: bytes of Spark, which a local session decodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast._jars import plugin_jars
from holdfast.cli import local_spark
from holdfast.cli.output import exported_rows
from holdfast.files.paths import AnyPath, absolute
from holdfast.files.skips import ROW
from holdfast.queries.folder import STATE_FILES_FOLDER
from holdfast.queries.parked import ParkedPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def write(folder: AnyPath, parked: Sequence[ParkedPartition], form: str) -> None:
    """Write the pending rows to stdout, in one of `exported_rows.FORMATS`."""
    exported_rows.require_no_terminal(form)
    with _rows(folder, parked) as rows:
        exported_rows.write_frame(rows.drop(ROW), form)


def matching(folder: AnyPath, parked: Sequence[ParkedPartition], where: str) -> pa.Table:
    """Return the pending rows for which an expression is true; see `selected`."""
    with _rows(folder, parked) as rows:
        return selected(rows, where)


def selected(rows: DataFrame, where: str) -> pa.Table:
    """Return the rows for which a Spark SQL expression is true; ValueError if it cannot be used."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # PySpark logs the errors that it raises.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        return exported_rows.to_arrow(rows.where(where))
    except (Py4JError, PySparkException) as error:
        said = local_spark.line(error)
        columns = ", ".join(rows.columns)
        raise ValueError(f"--where {where!r}: {said} Columns: {columns}") from None


@contextmanager
def _rows(folder: AnyPath, parked: Sequence[ParkedPartition]) -> Iterator[DataFrame]:
    """Read the rows of all inputs without skipped rows; valid in the block."""
    from pyspark.sql import DataFrame

    jars = {"spark.jars": ",".join(map(str, plugin_jars()))}
    with local_spark.session("to read parked rows", jars) as spark, local_spark.java_errors():
        jvm: Any = spark._jvm
        segments = (absolute(folder) / STATE_FILES_FOLDER).spark_name
        found = jvm.io.holdfast.spark.isolation.show.ParkedRows(spark._jsparkSession, segments)
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
        rows = sides[0]
        for side in sides[1:]:
            rows = rows.unionByName(side, allowMissingColumns=True)
        yield rows
