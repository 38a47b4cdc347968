"""What users of regional pipelines call."""

from holdfast.regions.api.begin import regional
from holdfast.regions.api.options import PipelineOptions
from holdfast.regions.api.pipeline import RegionalPipeline
from holdfast.regions.api.writer import RegionalWriter
from holdfast.regions.base.errors import (
    FolderInUseError,
    LayoutChangedError,
    RegionalQueryError,
    RegionFinishedError,
    RegionInTwoTasksError,
    SavepointError,
    SinkFailedError,
    SinkFencedError,
)
from holdfast.regions.checkpoint.begin_from import Restore, restore
from holdfast.regions.checkpoint.verify import DamagedCheckpointError
from holdfast.regions.coordinator import CheckpointInfo
from holdfast.regions.driver.metrics import PipelineMetrics
from holdfast.regions.runners.local import LocalQuery
from holdfast.regions.runners.spark.query import RegionalQuery
from holdfast.regions.sinks import CheckpointId, Stage, Staged, TwoPhaseSink
from holdfast.regions.splits import FileSplits
from holdfast.regions.state.keyed_map import MapState
from holdfast.regions.state.registry import ListState, ValueState
from holdfast.regions.state.saved import StateError
from holdfast.regions.task.metrics import Counter, Gauge, MetricGroup
from holdfast.regions.task.operators import Operator, OperatorContext

__all__ = [
    "CheckpointId",
    "CheckpointInfo",
    "Counter",
    "DamagedCheckpointError",
    "FileSplits",
    "FolderInUseError",
    "Gauge",
    "LayoutChangedError",
    "ListState",
    "LocalQuery",
    "MapState",
    "MetricGroup",
    "Operator",
    "OperatorContext",
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
    "SinkFailedError",
    "SinkFencedError",
    "Stage",
    "Staged",
    "StateError",
    "TwoPhaseSink",
    "ValueState",
    "regional",
    "restore",
]
