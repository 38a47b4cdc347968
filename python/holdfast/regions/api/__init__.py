"""The public API of regional pipelines. ``holdfast.regions`` lists the names."""

# ruff: noqa: I001  (a name imported as itself is exported)

from holdfast.regions.api.begin import regional as regional
from holdfast.regions.api.options import PipelineOptions as PipelineOptions
from holdfast.regions.api.pipeline import (
    RegionalPipeline as RegionalPipeline,
    SideOutput as SideOutput,
)
from holdfast.regions.api.writer import RegionalWriter as RegionalWriter
from holdfast.regions.base.errors import (
    FolderInUseError as FolderInUseError,
    FolderLostError as FolderLostError,
    JvmLostError as JvmLostError,
    LayoutChangedError as LayoutChangedError,
    OperatorFailedError as OperatorFailedError,
    RegionalQueryError as RegionalQueryError,
    RegionFinishedError as RegionFinishedError,
    RegionInTwoTasksError as RegionInTwoTasksError,
    SavepointError as SavepointError,
    SinkFailedError as SinkFailedError,
    SinkFencedError as SinkFencedError,
    StoppedError as StoppedError,
)
from holdfast.regions.checkpoint.begin_from import Restore as Restore, restore as restore
from holdfast.regions.checkpoint.verify import DamagedCheckpointError as DamagedCheckpointError
from holdfast.regions.coordinator import CheckpointInfo as CheckpointInfo
from holdfast.regions.coordinator.operator_coordinator import (
    EventGateway as EventGateway,
    OperatorCoordinator as OperatorCoordinator,
)
from holdfast.regions.driver.metrics import PipelineMetrics as PipelineMetrics
from holdfast.regions.runners.local import LocalQuery as LocalQuery
from holdfast.regions.runners.spark.query import RegionalQuery as RegionalQuery
from holdfast.regions.sinks import (
    CheckpointId as CheckpointId,
    Stage as Stage,
    Staged as Staged,
    TwoPhaseSink as TwoPhaseSink,
)
from holdfast.regions.sinks.kafka_once import write_kafka_once as write_kafka_once
from holdfast.regions.splits import FileSplits as FileSplits
from holdfast.regions.state.kinds.list import ListState as ListState
from holdfast.regions.state.kinds.map import MapState as MapState
from holdfast.regions.state.kinds.value import ValueState as ValueState
from holdfast.regions.base.saved import StateError as StateError
from holdfast.regions.task.metrics import (
    Counter as Counter,
    Gauge as Gauge,
    MetricGroup as MetricGroup,
)
from holdfast.regions.task.operators import (
    CheckpointListener as CheckpointListener,
    Operator as Operator,
    OperatorContext as OperatorContext,
)
