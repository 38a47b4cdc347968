"""``holdfast adopt``, ``undo``, ``leave``: another provider continues with a query's state.

docs/internals/moves.md has the protocol.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import folders, local_spark, publishing
from holdfast.cli.output import documents, report, tables
from holdfast.files.paths import AnyPath, absolute
from holdfast.queries.folder import PROVIDER
from holdfast.queries.logs import logged_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Folder of the records of files from before an adoption.
_RECORDS_FOLDER: Final = "moves"

#: To read and to write takes about as long as this many reads.
_READS: Final = 3


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of all commands that move a checkpoint."""
    folders.add_argument(command, of=" of the query")
    command.add_argument(
        "--master",
        default="local[*]",
        help="where Spark copies the state (default: on all cores of this machine)",
    )
    command.add_argument(
        "--output",
        metavar="FOLDER",
        help="the folder that the query writes with Spark's file sink, whose log gets an entry for "
        "the batch",
    )
    command.add_argument(
        "--yes",
        action="store_true",
        help="change the checkpoint (default: only say what would be written)",
    )


def add_adopt_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast adopt``."""
    add_arguments(command)
    command.add_argument(
        "--purge",
        action="store_true",
        help="delete the files of the old provider, after which the adoption cannot be undone; "
        "only once another batch has run",
    )


def add_leave_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast leave``."""
    add_arguments(command)
    command.add_argument(
        "--to", choices=("rocksdb", "hdfs"), required=True, help="the provider that gets the state"
    )
    command.add_argument(
        "--format",
        choices=("1", "2"),
        default="1",
        help="checkpoint format of the query's session, which is 1 unless it sets another",
    )


def adopt(arguments: argparse.Namespace) -> None:
    """Let Holdfast continue with a checkpoint of Spark's providers, or estimate the time."""
    folder = folders.query(arguments.folder)
    if arguments.purge:
        with local_spark.session(
            "to purge files", local_spark.needed(), master=arguments.master
        ) as spark:
            _purge(spark, folder, arguments)
        return
    with _session(arguments) as spark:
        _do(spark, folder, publishing.plan(spark, folder, "adoption"), "Holdfast", arguments)


def leave(arguments: argparse.Namespace) -> None:
    """Let one of Spark's providers continue with a checkpoint of Holdfast."""
    if arguments.to == "hdfs" and arguments.format == "2":
        raise ValueError("the HDFS-backed provider has checkpoint format 1 alone")
    folder = folders.query(arguments.folder)
    with _session(arguments) as spark:
        plan = publishing.plan(spark, folder, "leave", arguments.to, arguments.format)
        _do(spark, folder, plan, arguments.to, arguments)


def undo(arguments: argparse.Namespace) -> None:
    """Return to the state before an adoption."""
    folder = folders.query(arguments.folder)
    with _session(arguments) as spark:
        # An earlier command may not have known the output.
        plan = publishing.plan(spark, folder, "undo", arguments.output is not None)
        _do(spark, folder, plan, "its old provider", arguments)


def _do(spark: Any, folder: AnyPath, plan: Any, to: str, arguments: argparse.Namespace) -> None:
    output = publishing.given_output(arguments)
    if plan is None:
        _say_done(spark, folder, to, output, arguments)
        return
    document = move(spark, folder, plan, yes=arguments.yes, output=output)
    report.print_either(document, tables.of_move, json=arguments.json)
    sys.stdout.flush()
    if output is None:
        by_query = plan.provider() == PROVIDER
        publishing.say_unknown(plan.number(), by_query=by_query, yes=arguments.yes)
    if arguments.yes:
        said = f"batch {plan.number()} of {folder} has the state in {plan.provider()}. Start the "
        said += f"query with this provider and checkpoint format {plan.format()}"
    else:
        said = f"nothing was changed. It would take about {document['ms'] / 1000:.0f} s: add --yes"
    print(f"holdfast: {said}", file=sys.stderr)


def _session(arguments: argparse.Namespace) -> AbstractContextManager[SparkSession]:
    return local_spark.session(
        "to move a checkpoint", local_spark.needed(), master=arguments.master
    )


def _say_done(
    spark: Any, folder: AnyPath, to: str, output: AnyPath | None, arguments: argparse.Namespace
) -> None:
    """Print that there is no state to move, and complete the log of an output not given before."""
    newest = publishing.read_logs(spark, folder).newest()
    number, provider = newest.number(), newest.provider()
    if arguments.json:
        documents.print_document(
            documents.of_move(number, provider, provider, [], ms=0, moved=False)
        )
        sys.stdout.flush()
    said = f"the state of {folder} is in {to} already"
    if output is None:
        print(f"holdfast: {said}: there is nothing to do", file=sys.stderr)
        return
    lacking = publishing.complete(spark, folder, output, number, yes=arguments.yes)
    done = "has got" if arguments.yes else "lacks"
    more = "" if arguments.yes or not lacking else ": add --yes"
    print(f"holdfast: {said}. {output} {done} {lacking} entries of moves{more}", file=sys.stderr)


def _purge(spark: Any, folder: AnyPath, arguments: argparse.Namespace) -> None:
    document = purge(spark, folder, purgeable(spark, folder), yes=arguments.yes)
    if not document["adoptions"]:
        if arguments.json:
            documents.print_document({"purged": False, "adoptions": []})
            sys.stdout.flush()
        print(f"holdfast: {folder} has no files of an adoption to delete", file=sys.stderr)
        return
    report.print_either(document, tables.of_purge, json=arguments.json)
    sys.stdout.flush()
    if arguments.yes:
        files, size = (sum(one[of] for one in document["adoptions"]) for of in ("files", "bytes"))
        said = f"deleted {files} files of the old provider, {size} bytes"
    else:
        said = "nothing was deleted; --yes deletes the files"
    print(f"holdfast: {said}", file=sys.stderr)


def purgeable(spark: Any, folder: AnyPath) -> list[int]:
    """Return batches of adoptions with useless old files; OSError if they may still be needed."""
    publishing.plan(spark, folder, "requirePurgeable")
    return logged_batches(folder / _RECORDS_FOLDER)


def purge(spark: Any, folder: AnyPath, batches: Sequence[int], *, yes: bool) -> dict[str, Any]:
    """Delete the files that adoptions recorded, or only count them."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    found = []
    with local_spark.java_errors():
        for batch in batches:
            name = absolute(folder).spark_name
            files = publishing.java_moves(spark).OldFiles(name, batch, conf)
            files.purge(yes)
            found.append({"batch": batch, "files": files.count(), "bytes": files.bytes()})
    return {"purged": yes, "adoptions": found}


def move(
    spark: Any, folder: AnyPath, plan: Any, *, yes: bool, output: AnyPath | None = None
) -> dict[str, Any]:
    """Copy the state and publish the batch; without `yes` only read a partition of each operator.

    `spark` has Holdfast's settings, and Spark's file sink writes `output`. Returns the document
    of ``--json``.
    """
    with local_spark.java_errors():
        copy = publishing.java_moves(spark).StateCopy(spark._jsparkSession, plan)
        if output is not None:
            copy.sink(publishing.sink_log(spark, folder, output, plan.newest().number()))
        begin = time.monotonic()
        if yes:
            try:
                operators = json.loads(publishing.watched(spark, copy, lambda: copy.run(True)))
                publishing.publish(copy, folder, plan.number())
            except BaseException:
                copy.discard()
                raise
            ms = round((time.monotonic() - begin) * 1000)
        else:
            operators = json.loads(copy.run(False))
            ms = _extrapolate(operators) // spark.sparkContext.defaultParallelism
    old = plan.base().provider()
    return documents.of_move(plan.number(), old, plan.provider(), operators, ms=ms, moved=yes)


def _extrapolate(operators: list[dict[str, Any]]) -> int:
    """Scale up the one partition read of each operator; returns ms in which one core copies all."""
    ms = 0
    for one in operators:
        one["rows"] *= one["partitions"]
        one["bytes"] *= one["partitions"]
        ms += one["ms"] * one["partitions"] * _READS
    return ms
