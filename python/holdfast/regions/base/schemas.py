"""Schemas as users give them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: Any) -> pa.Schema:
    """Return a schema in Arrow's form.

    Parameters
    ----------
    schema : pyarrow.Schema, pyspark.sql.types.StructType or str
        A str is in Spark's DDL form, such as ``"carrier string, mean double"``.

    Returns
    -------
    pyarrow.Schema
        Of a schema of Spark's, the one in which Spark exchanges such rows with Python.

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If it is in DDL form and there is no SparkSession, which parses it; or if two columns have
        one name.
    """
    found = _arrow_schema(schema)
    # Rows of such a schema can be written, and then no reader tells one column from the other.
    if twice := [name for name in dict.fromkeys(found.names) if found.names.count(name) > 1]:
        raise ValueError(
            f"a schema has each column once, and this one has {twice[0]!r} several times"
        )
    return found


def _arrow_schema(schema: Any) -> pa.Schema:
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    try:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType
    except ImportError:
        raise TypeError(
            f"without PySpark, a schema is a pyarrow.Schema, not {type(schema).__name__}"
        ) from None
    if isinstance(schema, str):
        schema = _parsed(schema)
    if not isinstance(schema, StructType):
        raise TypeError(
            "a schema is a pyarrow.Schema, a pyspark StructType or a str in Spark's DDL form, not "
            f"{type(schema).__name__}"
        )
    # Only newer versions of PySpark want a time zone; that of the older ones is UTC.
    wanted = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **({"timezone": "UTC"} if "timezone" in wanted else {}))


def _parsed(ddl: str) -> Any:
    from pyspark import SparkContext
    from pyspark.sql.types import StructType

    if SparkContext._active_spark_context is None:
        raise ValueError(
            f"the schema {ddl!r} is in DDL form, which Spark parses: create a SparkSession first, "
            "or give a pyarrow.Schema"
        )
    return StructType.fromDDL(ddl)
