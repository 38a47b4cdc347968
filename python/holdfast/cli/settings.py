"""Commands that print settings and jars for Spark."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from holdfast._jars import plugin_jars
from holdfast._options import OPTIONS
from holdfast._spark import LIST_KEYS, spark_conf
from holdfast.cli.output.documents import print_document


def print_conf(arguments: argparse.Namespace) -> None:
    """Print the Spark settings as lines of ``spark-defaults.conf``."""
    options: Any = {name: getattr(arguments, name) for name in OPTIONS}
    conf = spark_conf(**options, spark=arguments.spark)
    if arguments.json:
        print_document(conf)
    else:
        width = max(map(len, conf))
        for key, value in conf.items():
            # Spark reads the file as Java properties, which escape with backslashes.
            print(f"{key:<{width}} {value}".replace("\\", "\\\\"))
    print(
        f"holdfast: {', '.join(LIST_KEYS[:-1])} and {LIST_KEYS[-1]} are lists; append these where "
        "you have entries",
        file=sys.stderr,
    )


def print_jar(arguments: argparse.Namespace) -> None:
    """Print the paths of the plugin's jars as ``--jars`` of ``spark-submit`` takes them."""
    jars = [str(jar) for jar in plugin_jars(spark=arguments.spark)]
    if arguments.json:
        print_document({"jars": jars})
    else:
        print(",".join(jars))
