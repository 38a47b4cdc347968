"""The beginning of a regional pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast._sessions import require_classic_session
from holdfast.regions.api.chain import Chain
from holdfast.regions.api.pipeline import RegionalPipeline
from holdfast.regions.base.schemas import schema_of_columns
from holdfast.regions.base.splitting import column_names, require_keys
from holdfast.regions.splits import FileSplits
from holdfast.regions.splits.file_splits import REGION_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def regional(
    source: DataFrame | FileSplits | None = None, *, region_by: str | Sequence[str] = ()
) -> RegionalPipeline:
    """Begin a regional pipeline.

    Parameters
    ----------
    source : pyspark.sql.DataFrame or FileSplits, optional
        A streaming DataFrame, or files that are handed to regions. None for a pipeline without
        Spark, see ``RegionalWriter.open_local``.
    region_by : str or sequence of str
        Column(s) whose values identify the region of a row: strings, integers, decimals, booleans,
        dates or timestamps. All rows of a region must arrive in one task of a batch. None for
        `FileSplits`, where a region is a reader.

    Raises
    ------
    ValueError
        If no column is named, one is named twice, is not in the DataFrame exactly once, or the
        DataFrame is not streaming, or columns are named for `FileSplits`.
    TypeError
        If a column has a type that cannot identify a region.
    NotImplementedError
        If the DataFrame is one of Spark Connect.

    Examples
    --------
    >>> query = (
    ...     holdfast.regional(flights, region_by=["origin", "month"])
    ...     .apply(DelayStatistics(), schema="carrier string, flights long, mean_delay double")
    ...     .write_parquet("delays")
    ...     .start(checkpoint="checkpoint")
    ... )
    """
    columns = column_names(region_by, of="region_by")
    if isinstance(source, FileSplits):
        if columns:
            raise ValueError("region_by is not for FileSplits: a region is a reader of splits")
        return RegionalPipeline(Chain(source, (REGION_COLUMN,)))
    if not columns:
        raise ValueError("region_by names no column")
    if source is not None:
        require_classic_session(source)
        missing = [column for column in columns if column not in source.columns]
        if missing:
            raise ValueError(
                f"region_by names {', '.join(missing)}, but the DataFrame has the columns "
                f"{', '.join(source.columns)}"
            )
        if not source.isStreaming:
            raise ValueError(
                "the DataFrame is not streaming: read it with spark.readStream, for example with "
                "the trigger availableNow=True to process what is there and stop"
            )
        require_keys(schema_of_columns(source, columns, of="region_by"), columns, of="region_by")
    return RegionalPipeline(Chain(source, columns))
