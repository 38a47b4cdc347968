"""Command line of Holdfast: ``holdfast`` or ``python -m holdfast``.

What a program may read goes to stdout; what a person should know goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import holdfast
from holdfast._spark import DEFAULT_MAX_FILE_BYTES

USAGE_ERROR = 2


def print_conf(arguments: argparse.Namespace) -> None:
    """Print the Spark settings as lines of ``spark-defaults.conf``."""
    settings = holdfast.spark_conf(
        max_file_bytes=arguments.max_file_bytes,
        compression=arguments.compression,
        max_memory_bytes=arguments.max_memory_bytes,
    )
    width = max(map(len, settings))
    for key, value in settings.items():
        # Spark reads the file as Java properties, where a backslash escapes.
        print(f"{key:<{width}} {value}".replace("\\", "\\\\"))
    print(
        "holdfast: spark.jars and spark.plugins are lists; append these where you have entries",
        file=sys.stderr,
    )


def print_jar(_: argparse.Namespace) -> None:
    """Print the path of the plugin jar."""
    print(holdfast.plugin_jar())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="holdfast", description="State backend for Spark Structured Streaming."
    )
    top.add_argument("--version", action="version", version=f"holdfast {holdfast.__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    conf = commands.add_parser("conf", help="print settings for spark-defaults.conf")
    conf.add_argument(
        "--max-file-bytes",
        type=int,
        default=DEFAULT_MAX_FILE_BYTES,
        metavar="BYTES",
        help="size at which a physical file is sealed (default: %(default)s)",
    )
    conf.add_argument("--compression", default="lz4", help="lz4 (default) or none")
    conf.add_argument(
        "--max-memory-bytes",
        type=int,
        metavar="BYTES",
        help="limit on native memory per executor (default: none)",
    )
    conf.set_defaults(run=print_conf)

    jar = commands.add_parser("jar", help="print the path of the Spark plugin's jar")
    jar.set_defaults(run=print_jar)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; those of this process by default.

    Returns
    -------
    int
        0, 1 (the command failed) or 2 (an argument is wrong).
    """
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
    except ValueError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return USAGE_ERROR
    except OSError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
