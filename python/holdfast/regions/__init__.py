"""Regional pipelines: checkpoints that complete although some regions could not take part.

``regional(df, region_by=...)`` begins a pipeline of operators over Arrow batches. Every region of
the stream (a Kafka partition, a device shard: whatever `region_by` identifies) has operator
instances and state of its own. If some regions fail to snapshot, the checkpoint completes with
their last good state, and their stored rows are replayed.

Modules that need PyArrow and NumPy are imported on first use: the command line reads checkpoints
without them.
"""

# ruff: noqa: F403, F405  (type checkers take the names from the star)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.regions.api import *

#: The names that users import, from here or from ``holdfast``.
__all__ = [
    "CheckpointId",
    "CheckpointInfo",
    "CheckpointListener",
    "Counter",
    "DamagedCheckpointError",
    "EventGateway",
    "FileSplits",
    "FolderInUseError",
    "FolderLostError",
    "Gauge",
    "JvmLostError",
    "LayoutChangedError",
    "ListState",
    "LocalQuery",
    "MapState",
    "MetricGroup",
    "Operator",
    "OperatorContext",
    "OperatorCoordinator",
    "OperatorFailedError",
    "PipelineMetrics",
    "PipelineOptions",
    "RegionFinishedError",
    "RegionInTwoTasksError",
    "RegionalPipeline",
    "RegionalQuery",
    "RegionalQueryError",
    "RegionalWriter",
    "Restore",
    "SavepointError",
    "SideOutput",
    "SinkFailedError",
    "SinkFencedError",
    "Stage",
    "Staged",
    "StateError",
    "StoppedError",
    "TwoPhaseSink",
    "ValueState",
    "regional",
    "restore",
    "write_kafka_once",
]


def __getattr__(name: str) -> Any:
    """Import all public names at the first use of one."""
    if name in __all__:
        from holdfast.regions import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, with those not imported yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
