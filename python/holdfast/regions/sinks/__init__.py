"""Sinks that publish a region's output once a checkpoint contains the region's state."""

# ruff: noqa: I001  (a name that is imported as itself is one for others, too)
from holdfast._core import Staged as Staged
from holdfast.regions.sinks.batch_function import (
    BatchFunction as BatchFunction,
    local_delivery as local_delivery,
    spark_delivery as spark_delivery,
)
from holdfast.regions.sinks.checkpoint_id import CheckpointId as CheckpointId
from holdfast.regions.sinks.parquet import (
    DEFAULT_COMPRESSION as DEFAULT_COMPRESSION,
    DEFAULT_TARGET_FILE_BYTES as DEFAULT_TARGET_FILE_BYTES,
    Compression as Compression,
    ParquetSink as ParquetSink,
)
from holdfast.regions.sinks.sink import Stage as Stage, TwoPhaseSink as TwoPhaseSink
