"""Sinks that publish a region's output once a checkpoint contains the region's state."""

from holdfast._core import Staged
from holdfast.regions.sinks.batch_function import (
    BatchFunction,
    local_delivery,
    spark_delivery,
)
from holdfast.regions.sinks.checkpoint_id import CheckpointId
from holdfast.regions.sinks.parquet import (
    DEFAULT_COMPRESSION,
    DEFAULT_TARGET_FILE_BYTES,
    Compression,
    ParquetSink,
)
from holdfast.regions.sinks.publisher import Publisher, SinkPublisher
from holdfast.regions.sinks.sink import Stage, TwoPhaseSink

__all__ = [
    "DEFAULT_COMPRESSION",
    "DEFAULT_TARGET_FILE_BYTES",
    "BatchFunction",
    "CheckpointId",
    "Compression",
    "ParquetSink",
    "Publisher",
    "SinkPublisher",
    "Stage",
    "Staged",
    "TwoPhaseSink",
    "local_delivery",
    "spark_delivery",
]
