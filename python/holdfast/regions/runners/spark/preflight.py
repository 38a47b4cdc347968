"""Checks before a pipeline starts in Spark, with advice in each error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._sessions import require_classic_session, require_jar, runs_plugin
from holdfast.regions.task.array_modules import missing_gpu

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Packages that region tasks import.
WORKER_PACKAGES: Final = ("holdfast", "pyarrow", "numpy")

_TRIGGERS: Final = ("processingTime", "once", "availableNow")


def require_application(session: SparkSession, name: str, *, gpu: bool = False) -> None:
    """Check that pipelines can run in an application, and this one with the others there.

    With `gpu`, its states are on a device. Raises a NotImplementedError in a session of Spark
    Connect. Raises a RuntimeError if Holdfast is missing, on the driver or in Python workers, or
    these lack CuPy or a device that they need, or the name is in use.
    """
    require_classic_session(session)
    context = session.sparkContext
    require_jar(context)
    plugins = context.getConf().get("spark.plugins", "") or ""
    if not runs_plugin(plugins):
        raise RuntimeError(
            f"the Spark application does not run Holdfast's plugin (spark.plugins={plugins!r}): "
            "build the session with holdfast.configure(SparkSession.builder).getOrCreate(), after "
            "stopping one that runs already"
        )
    if name in [query.name for query in session.streams.active]:
        raise RuntimeError(
            f"a query named {name!r} is open already in this application: stop it first, or start "
            "this pipeline with another name=..."
        )
    _require_worker_packages(context)
    if gpu:
        # Ask a Python worker: the driver may be on a machine without a device.
        (lacking,) = context.parallelize([None], 1).map(lambda _: missing_gpu()).collect()
        if lacking:
            raise RuntimeError(f"gpu=True: in Python workers ({context.pythonExec}) {lacking}")


def hadoop_umask(session: SparkSession) -> int | None:
    """Return ``fs.permissions.umask-mode``; None if it is not set."""
    context: Any = session.sparkContext
    storage = context._jvm.io.holdfast.spark.storage
    umask = int(storage.LocalModes.umask(context._jsc.hadoopConfiguration()))
    return None if umask < 0 else umask


def require_source_of_splits() -> None:
    """Check that PySpark's Data Source API supports a source of file splits."""
    import pyspark

    if tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2):
        raise NotImplementedError(
            "FileSplits needs PySpark 4.2 or newer: the Data Source API of older versions does not "
            "tell a source where a batch starts, nor that a query ends with what is there. Found "
            f"{pyspark.__version__}; read the files with spark.readStream instead"
        )


def require_trigger(trigger: Mapping[str, Any]) -> None:
    """Check that Spark knows a trigger."""
    if trigger and (len(trigger) > 1 or not trigger.keys() <= set(_TRIGGERS)):
        raise ValueError(
            f"trigger={dict(trigger)!r} is not allowed: expected one of {', '.join(_TRIGGERS)}, as "
            "in trigger={'processingTime': '10 seconds'}"
        )


def _require_worker_packages(context: SparkContext) -> None:
    """Ask a Python worker, unless it runs in this interpreter."""
    python = context.pythonExec
    with suppress(OSError):
        if str(context.master).startswith("local") and Path(python).samefile(sys.executable):
            return

    # Nested, so that a worker without Holdfast can run it, too.
    def missing(names: tuple[str, ...]) -> list[str]:
        import importlib

        found = []
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError as e:
                found.append(f"{name} ({e})")
        return found

    (lacking,) = context.parallelize([WORKER_PACKAGES], 1).map(missing).collect()
    if lacking:
        raise RuntimeError(
            f"Python workers ({python}) cannot import {', '.join(lacking)}: install "
            "'holdfast-spark[spark]' there, or set PYSPARK_PYTHON to an interpreter that has it"
        )
