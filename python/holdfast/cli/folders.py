"""Checkpoint folders as the command line gets them."""

from __future__ import annotations

import argparse
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from holdfast._jars import plugin_jars
from holdfast.regions.base.hadoop_path import use_jvm
from holdfast.regions.base.paths import AnyPath, any_folder

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def given(folder: str) -> AnyPath:
    """Return the folder that an argument names: a path, or a URI.

    For another scheme than ``file`` a JVM is begun, with the settings of spark-defaults.conf.

    Raises
    ------
    OSError, ValueError
        If there is no file system of this scheme, or it cannot be reached.
    """
    if not _URI.match(folder):
        return Path(folder)
    if not folder.lower().startswith("file:"):
        if find_spec("pyspark") is None:
            raise OSError(
                f"{folder} is on a file system that only Spark reaches: install 'holdfast[spark]'"
            )
        _begin_jvm()
    return any_folder(folder)


def add_argument(command: argparse.ArgumentParser, *, of: str) -> None:
    """Add the argument for a checkpoint folder."""
    command.add_argument(
        "folder", help=f"checkpoint folder{of}: a path, or a URI such as hdfs://namenode/checkpoint"
    )


def _begin_jvm() -> None:
    from pyspark.java_gateway import launch_gateway

    # It ends with this process, because its standard input does.
    jvm: Any = launch_gateway().jvm
    # Not by spark.jars, which would take the place of the user's.
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in plugin_jars():
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    settings = jvm.org.apache.spark.SparkConf()
    use_jvm(jvm, jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings))
