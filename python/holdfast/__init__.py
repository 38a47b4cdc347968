"""Holdfast: a state backend for Spark Structured Streaming.

The state of all partitions of an executor goes into a few merged files instead of hundreds of small
ones. Every file lives for exactly as long as a retained checkpoint needs it.

Four ways in:

- `configure` (or `spark_conf`): an unmodified Structured Streaming query keeps its state in
  Holdfast. This needs PySpark 4.0.1 or newer.
- `regional`: a pipeline of operators over Arrow batches whose checkpoints complete although some
  regions could not take part. This needs PyArrow and NumPy, and PySpark unless it is run without.
- `open_state`: the state of a query or pipeline as a table, without Spark. This needs PyArrow and
  NumPy. `branch`: a checkpoint that begins with the state of a query.
- `SnapshotManager`: the file-merging snapshot manager by itself. This needs nothing.

Importing this package is quick: PySpark, PyArrow and NumPy are imported where they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast._core import (
    AttemptEndedError,
    CorruptSegmentError,
    FencedError,
    FileStatus,
    NewerFormatError,
    Owner,
    SegmentRef,
    SnapshotManager,
    Stats,
    __version__,
)
from holdfast._jars import plugin_jars
from holdfast._passes import passes
from holdfast._spark import check, configure, spark_conf
from holdfast.regions import __all__ as _of_regions

if TYPE_CHECKING:
    from holdfast.queries.branches import branch as branch
    from holdfast.reading.opened_state import OpenedState as OpenedState
    from holdfast.reading.opening import open_state as open_state
    from holdfast.reading.state_differences import StateChanges as StateChanges
    from holdfast.regions import *  # noqa: F403

_MODULES = {
    "OpenedState": "reading.opened_state",
    "StateChanges": "reading.state_differences",
    "branch": "queries.branches",
    "open_state": "reading.opening",
}

__all__ = [
    "AttemptEndedError",
    "CorruptSegmentError",
    "FencedError",
    "FileStatus",
    "NewerFormatError",
    "Owner",
    "SegmentRef",
    "SnapshotManager",
    "Stats",
    "__version__",
    "check",
    "configure",
    "passes",
    "plugin_jars",
    "spark_conf",
]
__all__ += [*_MODULES, *_of_regions]


def __getattr__(name: str) -> Any:
    """Import names that need PyArrow only when they are used."""
    if name in _of_regions:
        from holdfast import regions

        return getattr(regions, name)
    if name in _MODULES:
        return getattr(import_module(f"holdfast.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return public names, those in `regions` only if it can be imported: `help` reads each."""
    from importlib.util import find_spec

    known = [name for name in globals() if name.startswith("__") or name in __all__]
    importable = find_spec("pyarrow") is not None and find_spec("numpy") is not None
    return sorted({*known, *__all__} if importable else known)
