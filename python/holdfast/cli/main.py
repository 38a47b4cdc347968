"""Command line of Holdfast: ``holdfast`` or ``python -m holdfast``.

Output for programs goes to stdout, messages for people go to stderr.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence

from holdfast._core import NewerFormatError, __version__
from holdfast._jars import UnsupportedSparkError
from holdfast._options import OPTIONS, Option
from holdfast.cli import (
    bad_rows,
    checkpoints,
    cost,
    doctor,
    folders,
    leases,
    moves,
    parked,
    quarantine,
    repartition,
    rollback,
    settings,
    state,
)
from holdfast.regions.base.errors import FolderInUseError

_FAILURES = (
    ImportError,
    OSError,
    FolderInUseError,
    NewerFormatError,
    NotImplementedError,
    UnsupportedSparkError,
)

#: Some commands need them.
_PACKAGES = ("pyarrow", "numpy")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="holdfast", description="State backend for Spark Structured Streaming."
    )
    top.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    conf = commands.add_parser("conf", help="print settings for spark-defaults.conf")
    for name, option in OPTIONS.items():
        _add_option(conf, f"--{name.replace('_', '-')}", option)
    conf.set_defaults(run=settings.print_conf)

    jar = commands.add_parser("jar", help="print the paths of the Spark plugin's jars, for --jars")
    jar.set_defaults(run=settings.print_jar)
    for command in (conf, jar):
        command.add_argument(
            "--spark",
            metavar="VERSION",
            help="version of Spark they are for, such as 4.0 (default: that of PySpark)",
        )

    shown = commands.add_parser(
        "show",
        help="print the checkpoints of a regional pipeline, or what the folder of a query is",
    )
    folders.add_argument(shown, of="")
    shown.add_argument(
        "--id",
        type=int,
        metavar="N",
        help="print the regions of this checkpoint, or the segments of this batch of a query",
    )
    shown_as = shown.add_mutually_exclusive_group()
    _add_json(shown_as)
    shown_as.add_argument(
        "--details",
        action="store_true",
        help="print also the newest attempts, sizes of regions, operators and stores, and files "
        "with live and dead bytes; of a query, for which all of its state is read",
    )
    shown.set_defaults(run=checkpoints.show)

    verified = commands.add_parser(
        "verify",
        help="read everything that the checkpoints of a regional pipeline, or the batches of a "
        "query, need",
    )
    folders.add_argument(verified, of="")
    verified.add_argument(
        "--pipeline",
        metavar="NAME",
        help="name of the pipeline in the owners of its segments (default: what the metadata says)",
    )
    verified.set_defaults(run=checkpoints.verify)

    told = commands.add_parser(
        "history", help="print what became of the attempts at checkpoints of a regional pipeline"
    )
    folders.add_argument(told, of=" of the pipeline")
    told.add_argument("--last", type=int, metavar="N", help="print the newest N attempts only")
    told.add_argument(
        "--days", type=int, metavar="D", help="print attempts that ended in the last D days only"
    )
    told.set_defaults(run=checkpoints.print_attempts)

    kept = commands.add_parser(
        "state",
        help="print the rows of the state of a query or pipeline, or what SQL finds in them",
    )
    state.add_arguments(kept)
    kept.set_defaults(run=state.show)

    compared = commands.add_parser(
        "diff", help="print the rows of a query's state that differ between two batches"
    )
    state.add_diff_arguments(compared)
    compared.set_defaults(run=state.show_differences)

    priced = commands.add_parser(
        "cost",
        help="print the objects and requests of a query's batches on an object store and what they "
        "cost a month, now and with Holdfast",
    )
    cost.add_arguments(priced)
    priced.set_defaults(run=cost.run)

    waiting = commands.add_parser(
        "parked",
        help="print the partitions of a query that wait because their tasks failed "
        "(isolate_failures), or skip rows that cannot be processed",
    )
    parked.add_arguments(waiting)
    waiting.set_defaults(run=parked.show)

    aside = commands.add_parser(
        "dead-letters",
        help="print how many rows queries have set aside (bad_rows), by batch and error",
    )
    aside.add_argument("folder", help="folder of one query or of all: a path, or a URI")
    aside.add_argument(
        "--rows", action="store_true", help="print the rows instead, each as a line of JSON"
    )
    aside.set_defaults(run=bad_rows.show)

    held = commands.add_parser(
        "quarantine",
        help="print the regions of a pipeline that are in quarantine (quarantine_after), or the "
        "rows that they owe, or move such rows to dead letters",
    )
    quarantine.add_arguments(held)
    held.set_defaults(run=quarantine.print_regions)

    adopted = commands.add_parser(
        "adopt",
        help="let Holdfast go on with the checkpoint of a query that has its state in Spark's "
        "RocksDB or HDFS-backed provider",
    )
    moves.add_adopt_arguments(adopted)
    adopted.set_defaults(run=moves.adopt)

    divided = commands.add_parser(
        "repartition", help="give the state of a query another number of partitions"
    )
    repartition.add_arguments(divided)
    divided.set_defaults(run=repartition.run)

    undone = commands.add_parser(
        "undo", help="let the old provider go on again, after 'adopt' and before another batch"
    )
    moves.add_arguments(undone)
    undone.set_defaults(run=moves.undo)

    left = commands.add_parser(
        "leave",
        help="let Spark's RocksDB or HDFS-backed provider go on with the checkpoint of a query "
        "that has its state in Holdfast",
    )
    moves.add_leave_arguments(left)
    left.set_defaults(run=moves.leave)

    leases.add_commands(commands)

    returned = commands.add_parser(
        "rollback",
        help="let a query go on from the state and the positions of an earlier batch or a tag",
    )
    rollback.add_arguments(returned)
    returned.set_defaults(run=rollback.run)

    examined = commands.add_parser(
        "doctor", help="look whether this machine has what Holdfast needs, and say what to do"
    )
    examined.add_argument(
        "folder",
        nargs="?",
        help="folder for checkpoints, a path or a URI: try to write, read and delete a file there",
    )
    examined.set_defaults(run=doctor.run)

    for command in commands.choices.values():
        if command not in (shown, kept, compared):
            _add_json(command)
    return top


def _add_option(command: argparse.ArgumentParser, flag: str, option: Option) -> None:
    said = option.meaning.partition(". ")[0].replace("`", "")
    said = f"{said[0].lower()}{said[1:].removesuffix('.')}".replace("%", "%%")
    if option.type == "flag":
        # An option that is on by default has a twin that switches it off.
        action = argparse.BooleanOptionalAction if option.default else "store_true"
        command.add_argument(flag, action=action, default=option.default, help=said)
    else:
        metavar = "SIZE" if option.type == "size" else None
        kind = {"share": float, "count": int}.get(option.type, str)
        said += " (default: %(default)s)"
        command.add_argument(flag, type=kind, default=option.default, metavar=metavar, help=said)


def _add_json(command: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of some arguments, by default of this process.

    Returns 0, 1 (the command failed), 2 (an argument is wrong), or as a shell for a program that a
    signal ended: 130 (interrupted) or 141 (no process reads its output).
    """
    _make_printable()
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _close_stdout()
        return 128 + signal.SIGPIPE
    except ValueError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 2
    except _FAILURES as error:
        is_known = isinstance(error, ImportError) and error.name in _PACKAGES
        advice = f": pip install {' '.join(_PACKAGES)}" if is_known else ""
        print(f"holdfast: {error}{advice}", file=sys.stderr)
        return 1
    return 0


def _make_printable() -> None:
    """Make stdout and stderr usable on any terminal.

    Python has None for a stream that the caller closed (``>&-``), which `print` takes for stdout.
    Names and causes have characters that the encoding of the terminal may lack.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _close_stdout() -> None:
    """Drop a pipe without reader: Python would write its buffer at the end, and fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
