"""Holdfast: a state backend for Spark Structured Streaming.

The state of all partitions of an executor goes into a few merged files instead of hundreds of small
ones, and every file lives for exactly as long as a retained checkpoint needs it.

Three ways in:

- `configure` (or `spark_conf`): an unmodified Structured Streaming query keeps its state in
  Holdfast. This needs PySpark 4.0.1 or newer.
- `regional`: a pipeline of operators over Arrow batches whose checkpoints complete although some
  regions could not take part. This needs PyArrow and NumPy, and PySpark unless it is run without.
- `SnapshotManager`: the file-merging snapshot manager by itself. This needs nothing.

Importing this package is quick: PySpark, PyArrow and NumPy are imported where they are used.
"""

from typing import TYPE_CHECKING, Any

from holdfast._core import (
    AttemptEndedError,
    CorruptSegmentError,
    FencedError,
    FileStatus,
    Owner,
    SegmentRef,
    SnapshotManager,
    Stats,
    __version__,
)
from holdfast._jars import plugin_jars
from holdfast._spark import check, configure, spark_conf

if TYPE_CHECKING:
    from holdfast.regions import (
        CheckpointId,
        CheckpointInfo,
        DamagedCheckpointError,
        FileSplits,
        FolderInUseError,
        LayoutChangedError,
        LocalQuery,
        Operator,
        OperatorContext,
        PipelineMetrics,
        RegionalQuery,
        RegionalQueryError,
        RegionFinishedError,
        RegionInTwoTasksError,
        SavepointError,
        SinkFailedError,
        SinkFencedError,
        Stage,
        Staged,
        StateError,
        TwoPhaseSink,
        regional,
        restore,
    )

__all__ = [
    "AttemptEndedError",
    "CheckpointId",
    "CheckpointInfo",
    "CorruptSegmentError",
    "DamagedCheckpointError",
    "FencedError",
    "FileSplits",
    "FileStatus",
    "FolderInUseError",
    "LayoutChangedError",
    "LocalQuery",
    "Operator",
    "OperatorContext",
    "Owner",
    "PipelineMetrics",
    "RegionFinishedError",
    "RegionInTwoTasksError",
    "RegionalQuery",
    "RegionalQueryError",
    "SavepointError",
    "SegmentRef",
    "SinkFailedError",
    "SinkFencedError",
    "SnapshotManager",
    "Stage",
    "Staged",
    "StateError",
    "Stats",
    "TwoPhaseSink",
    "__version__",
    "check",
    "configure",
    "plugin_jars",
    "regional",
    "restore",
    "spark_conf",
]


def __getattr__(name: str) -> Any:
    """Import what needs PyArrow only when it is asked for."""
    if name in __all__:
        from holdfast import regions

        return getattr(regions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
