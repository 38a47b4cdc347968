"""Holdfast: a state backend for Spark Structured Streaming.

The state of all partitions of an executor goes into a few merged files instead of hundreds of small
ones, and every file lives for exactly as long as a retained checkpoint needs it.

Two ways in:

- `configure` (or `spark_conf`): an unmodified Structured Streaming query keeps its state in
  Holdfast. This needs PySpark 4.3.
- `SnapshotManager`: the file-merging snapshot manager by itself. This needs nothing.

Importing this package is quick: PySpark, PyArrow and NumPy are imported where they are used.
"""

from holdfast._core import (
    AttemptEndedError,
    CorruptSegmentError,
    FileStatus,
    Owner,
    SegmentRef,
    SnapshotManager,
    Stats,
    __version__,
)
from holdfast._spark import configure, plugin_jar, spark_conf

__all__ = [
    "AttemptEndedError",
    "CorruptSegmentError",
    "FileStatus",
    "Owner",
    "SegmentRef",
    "SnapshotManager",
    "Stats",
    "__version__",
    "configure",
    "plugin_jar",
    "spark_conf",
]
