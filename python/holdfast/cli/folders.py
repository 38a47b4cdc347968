"""Checkpoint folders of the command line."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from holdfast.cli.java import begin_jvm
from holdfast.cli.local_spark import java_errors
from holdfast.files.mounted import MountedPath
from holdfast.files.paths import URI, AnyPath, any_folder, is_remote_uri
from holdfast.files.reached import use_jvm
from holdfast.queries.folder import is_query_checkpoint


def given(folder: str) -> AnyPath:
    """Return the folder that an argument names: a path, or a URI.

    For another scheme than ``file`` it starts a JVM with the settings of spark-defaults.conf.

    Raises an OSError or ValueError if no file system has this scheme, or it cannot be reached.
    """
    if not URI.match(folder):
        return MountedPath(folder)
    if is_remote_uri(folder):
        if find_spec("pyspark") is None:
            raise OSError(
                f"{folder} is on a file system that only Spark reaches: "
                "install 'holdfast-spark[spark]'"
            )
        jvm = begin_jvm()
        with java_errors():
            settings = jvm.org.apache.spark.SparkConf()
            hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
            use_jvm(jvm, hadoop.newConfiguration(settings))
    return any_folder(folder)


def query(folder: str) -> AnyPath:
    """Return the folder of an argument; FileNotFoundError if it is no checkpoint of a query."""
    found = given(folder)
    if not found.exists():
        raise FileNotFoundError(f"{found} does not exist")
    if not is_query_checkpoint(found):
        raise FileNotFoundError(f"{found} is not the checkpoint of a streaming query")
    return found


def add_argument(command: argparse.ArgumentParser, *, of: str) -> None:
    """Add the argument for a checkpoint folder."""
    command.add_argument(
        "folder", help=f"checkpoint folder{of}: a path, or a URI such as hdfs://namenode/checkpoint"
    )
