"""Schemas in the forms that users give."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def arrow_schema(schema: Any) -> pa.Schema:
    """Return a schema in Arrow's form.

    Parameters
    ----------
    schema : pyarrow.Schema, pyspark.sql.types.StructType or str
        A str is in Spark's DDL form, such as ``"carrier string, mean double"``. Spark's schemas
        become those in which Spark exchanges such rows with Python.

    Raises
    ------
    TypeError
        If it has another type, or Arrow does not have the type of a column.
    ValueError
        If it is in DDL form and there is no SparkSession to parse it, or two columns have one name.
    """
    import pyarrow as pa

    found = schema if isinstance(schema, pa.Schema) else _of_spark(schema)
    # No reader could tell the columns of written rows apart.
    if twice := [name for name in dict.fromkeys(found.names) if found.names.count(name) > 1]:
        raise ValueError(
            f"a schema has each column once, and this one has {twice[0]!r} several times"
        )
    return found


def schema_of_columns(frame: DataFrame, names: Collection[str], *, of: str) -> pa.Schema:
    """Return columns in Arrow's form; a TypeError names `of`, the option, if Arrow lacks a type."""
    return _of_fields([field for field in frame.schema.fields if field.name in names], of)


def _of_spark(schema: Any) -> pa.Schema:
    try:
        from pyspark.sql.types import StructType
    except ImportError:
        raise TypeError(
            f"without PySpark, a schema is a pyarrow.Schema, not {type(schema).__name__}"
        ) from None
    if isinstance(schema, str):
        from pyspark import SparkContext

        if SparkContext._active_spark_context is None:
            raise ValueError(
                f"the schema {schema!r} is in DDL form, which Spark parses: create a SparkSession "
                "first, or give a pyarrow.Schema"
            )
        schema = StructType.fromDDL(schema)
    if not isinstance(schema, StructType):
        raise TypeError(
            "a schema is a pyarrow.Schema, a pyspark StructType or a str in Spark's DDL form, not "
            f"{type(schema).__name__}"
        )
    return _of_fields(schema.fields, "schema")


def _of_fields(fields: Sequence[Any], of: str) -> pa.Schema:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # Newer versions of PySpark ask for a time zone; older ones use UTC.
    wanted = inspect.signature(to_arrow_schema).parameters
    zone = {"timezone": "UTC"} if "timezone" in wanted else {}
    found = []
    for field in fields:
        try:
            found += to_arrow_schema(StructType([field]), **zone)
        except PySparkException as error:
            kind = field.dataType.simpleString()
            raise TypeError(
                f"{of}: the column {field.name!r} has type {kind}, which Arrow does not have: use "
                "a string"
            ) from error
    return pa.schema(found)
