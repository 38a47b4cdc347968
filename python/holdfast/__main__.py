"""Command line of Holdfast: ``holdfast`` or ``python -m holdfast``.

What a program may read goes to stdout; what a person should know goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import holdfast
from holdfast import _documents, _inspect, _query, _report
from holdfast._spark import DEFAULT_MAX_FILE_BYTES, LIST_KEYS

USAGE_ERROR = 2


def print_conf(arguments: argparse.Namespace) -> None:
    """Print the Spark settings as lines of ``spark-defaults.conf``."""
    settings = holdfast.spark_conf(
        max_file_bytes=arguments.max_file_bytes,
        compression=arguments.compression,
        max_memory_bytes=arguments.max_memory_bytes,
    )
    if arguments.json:
        _documents.print_document(settings)
    else:
        width = max(map(len, settings))
        for key, value in settings.items():
            # Spark reads the file as Java properties, where a backslash escapes.
            print(f"{key:<{width}} {value}".replace("\\", "\\\\"))
    print(
        f"holdfast: {', '.join(LIST_KEYS[:-1])} and {LIST_KEYS[-1]} are lists; append these where "
        "you have entries",
        file=sys.stderr,
    )


def print_jar(arguments: argparse.Namespace) -> None:
    """Print the path of the plugin jar."""
    jar = str(holdfast.plugin_jar())
    if arguments.json:
        _documents.print_document({"jar": jar})
    else:
        print(jar)


def show(arguments: argparse.Namespace) -> None:
    """Print the checkpoints of a pipeline, or the regions of one, or what a query's folder is."""
    folder: Path = arguments.folder
    if arguments.id is None and _query.is_query_checkpoint(folder):
        _show_query(_query.read_query_checkpoint(folder), json=arguments.json)
        return
    ids = _inspect.checkpoint_ids(folder)
    if arguments.id is not None:
        metadata = _inspect.read_metadata(folder, arguments.id)
        if arguments.json:
            _documents.print_document(_documents.of_regions(metadata))
        else:
            _report.print_regions(metadata)
        return
    summaries: list[_inspect.Summary] = []
    unreadable: list[str] = []
    for id in ids:
        try:
            summaries.append(_inspect.summarise(folder, id))
        except _inspect.UNREADABLE as error:
            # The pipeline may be running, and let go of a checkpoint meanwhile.
            if _inspect.metadata_path(folder, id).exists():
                unreadable.append(str(error))
    if arguments.json:
        _documents.print_document(_documents.of_checkpoints(summaries))
    else:
        _report.print_checkpoints(summaries)
        if summaries:
            _report.print_beginning(summaries[-1].metadata)
    if unreadable:
        raise OSError("\n  ".join([f"{len(unreadable)} checkpoints cannot be read:", *unreadable]))


def _show_query(query: _query.QueryCheckpoint, *, json: bool) -> None:
    if json:
        _documents.print_document(_documents.of_query(query))
    else:
        _report.print_query(query)


def verify(arguments: argparse.Namespace) -> None:
    """Read everything that the checkpoints of a pipeline need, and print what cannot be read."""
    folder: Path = arguments.folder
    ids = _inspect.checkpoint_ids(folder)
    verification = _inspect.Verification(folder, arguments.pipeline)
    with _report.progress() as bars:
        verdicts = [verification.verify(id, bars.start(id)) for id in ids]
    if arguments.json:
        _documents.print_document(_documents.of_verdicts(verdicts))
    else:
        _report.print_verdicts(verdicts)
    damaged = [verdict for verdict in verdicts if verdict.damage]
    if damaged:
        raise OSError(f"{len(damaged)} of {len(verdicts)} checkpoints in {folder} are damaged")


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
        default=DEFAULT_MAX_FILE_BYTES,
        metavar="SIZE",
        help="size at which a physical file is sealed, in bytes or as 64m (default: %(default)s)",
    )
    conf.add_argument("--compression", default="lz4", help="lz4 (default) or none")
    conf.add_argument(
        "--max-memory-bytes",
        metavar="SIZE",
        help="limit on native memory per executor, in bytes or as 8g (default: none)",
    )
    conf.set_defaults(run=print_conf)

    jar = commands.add_parser("jar", help="print the path of the Spark plugin's jar")
    jar.set_defaults(run=print_jar)

    shown = commands.add_parser(
        "show",
        help="print the checkpoints of a regional pipeline, or what the folder of a query is",
    )
    shown.add_argument("folder", type=Path, help="checkpoint folder")
    shown.add_argument("--id", type=int, metavar="N", help="print the regions of this checkpoint")
    shown.set_defaults(run=show)

    verified = commands.add_parser(
        "verify", help="read everything that the checkpoints of a regional pipeline need"
    )
    verified.add_argument("folder", type=Path, help="checkpoint folder of the pipeline")
    verified.add_argument(
        "--pipeline",
        metavar="NAME",
        help="name of the pipeline in the owners of its segments (default: what the metadata says)",
    )
    verified.set_defaults(run=verify)

    for command in (conf, jar, shown, verified):
        command.add_argument("--json", action="store_true", help="print one JSON document")
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
    except (OSError, NotImplementedError) as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
