"""``holdfast adopt``, ``undo``, ``leave``: another provider goes on with the state of a query.

docs/internals/moves.md has the protocol.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli import folders, local_spark, publishing
from holdfast.cli.output import documents, report, tables
from holdfast.files.paths import AnyPath, absolute
from holdfast.files.printable import printable
from holdfast.queries import move_logs
from holdfast.queries.folder import PROVIDER
from holdfast.queries.logs import MOVE_KEY, PROVIDER_KEY, logged_batches
from holdfast.queries.move_logs import Batch, Logs
from holdfast.queries.parked import parked_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = "org.apache.spark.sql.execution.streaming.state"
#: Spark's own providers.
_SPARKS: Final = {
    "rocksdb": f"{_PACKAGE}.RocksDBStateStoreProvider",
    "hdfs": f"{_PACKAGE}.HDFSBackedStateStoreProvider",
}

#: Names files from before an adoption.
_RECORDS_FOLDER: Final = "moves"

#: To read and to write takes about as long as to read so often.
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
        "--to", choices=_SPARKS, required=True, help="the provider that gets the state"
    )
    command.add_argument(
        "--format",
        choices=("1", "2"),
        default="1",
        help="checkpoint format of the query's session, which is 1 unless it sets another",
    )


@dataclass(frozen=True)
class Plan:
    """A batch without input that is to be published.

    Attributes
    ----------
    command : str
        The command that publishes it.
    newest : Batch
        The batch before it.
    base : Batch
        The batch whose state it gets.
    provider, format : str
        The class that gets the state, and its checkpoint format.
    """

    folder: AnyPath
    command: str
    newest: Batch
    base: Batch
    provider: str
    format: str

    @property
    def number(self) -> int:
        """The number of the batch."""
        return self.newest.number + 1

    @property
    def changes(self) -> dict[str, str]:
        """Settings by which it differs from the batch before it."""
        return {PROVIDER_KEY: self.provider, MOVE_KEY: self.command}


def adopt(arguments: argparse.Namespace) -> None:
    """Let Holdfast go on with a checkpoint of Spark's providers, or say what that would take."""
    folder = folders.given(arguments.folder)
    if arguments.purge:
        _purge(folder, arguments)
    else:
        _do(plan_adoption(folder), folder, "Holdfast", arguments)


def leave(arguments: argparse.Namespace) -> None:
    """Let one of Spark's providers go on with a checkpoint of Holdfast."""
    folder = folders.given(arguments.folder)
    _do(plan_leave(folder, arguments.to, arguments.format), folder, arguments.to, arguments)


def undo(arguments: argparse.Namespace) -> None:
    """Go back from an adoption to the state from before it."""
    folder = folders.given(arguments.folder)
    logs = move_logs.read(folder)
    if arguments.output is not None and logs.newest.provider in _SPARKS.values():
        # An undo that was not told of the output, whatever ran since.
        logs.require_ended()
        plan = None
    else:
        plan = plan_undo(folder)
    _do(plan, folder, "its old provider", arguments)


def _do(plan: Plan | None, folder: AnyPath, to: str, arguments: argparse.Namespace) -> None:
    output = publishing.given_output(arguments)
    if plan is None:
        _say_done(folder, to, output, arguments)
        return
    with _session(arguments) as spark:
        document = move(spark, plan, yes=arguments.yes, output=output)
    report.print_either(document, tables.of_move, json=arguments.json)
    sys.stdout.flush()
    if output is None:
        by_query = plan.provider == PROVIDER
        publishing.say_unknown(plan.number, by_query=by_query, yes=arguments.yes)
    if arguments.yes:
        said = f"batch {plan.number} of {folder} has the state in {plan.provider}. Start the query "
        said += f"with this provider and checkpoint format {plan.format}"
    else:
        said = f"nothing was changed. It would take about {document['ms'] / 1000:.0f} s: add --yes"
    print(f"holdfast: {said}", file=sys.stderr)


def _session(arguments: argparse.Namespace) -> AbstractContextManager[SparkSession]:
    return local_spark.session(
        "to move a checkpoint", local_spark.needed(), master=arguments.master
    )


def _say_done(
    folder: AnyPath, to: str, output: AnyPath | None, arguments: argparse.Namespace
) -> None:
    """Say that there is no state to move. An earlier command may not have known the output."""
    newest = move_logs.read(folder).newest
    if arguments.json:
        documents.print_document(
            documents.of_move(
                newest.number, newest.provider, newest.provider, [], ms=0, moved=False
            )
        )
        sys.stdout.flush()
    said = f"the state of {folder} is in {to} already"
    if output is None:
        print(f"holdfast: {said}: there is nothing to do", file=sys.stderr)
        return
    with _session(arguments) as spark:
        lacking = publishing.complete(spark, folder, output, newest, yes=arguments.yes)
    done = "has got" if arguments.yes else "lacks"
    more = "" if arguments.yes or not lacking else ": add --yes"
    print(f"holdfast: {said}. {output} {done} {lacking} entries of moves{more}", file=sys.stderr)


def _purge(folder: AnyPath, arguments: argparse.Namespace) -> None:
    batches = purgeable(folder)
    if not batches:
        if arguments.json:
            documents.print_document({"purged": False, "adoptions": []})
            sys.stdout.flush()
        print(f"holdfast: {folder} has no files of an adoption to delete", file=sys.stderr)
        return
    with local_spark.session(
        "to purge files", local_spark.needed(), master=arguments.master
    ) as spark:
        document = purge(spark, folder, batches, yes=arguments.yes)
    report.print_either(document, tables.of_purge, json=arguments.json)
    sys.stdout.flush()
    if arguments.yes:
        files, size = (sum(one[of] for one in document["adoptions"]) for of in ("files", "bytes"))
        said = f"deleted {files} files of the old provider, {size} bytes"
    else:
        said = "nothing was deleted; --yes deletes the files"
    print(f"holdfast: {said}", file=sys.stderr)


def purgeable(folder: AnyPath) -> list[int]:
    """Return the batches of adoptions whose old files are still there and of no use.

    Raises
    ------
    OSError
        If the files may be needed to undo an adoption, or by the provider of the query.
    """
    logs = move_logs.read(folder)
    logs.require_holdfast()
    if logs.newest.conf.get(MOVE_KEY) == "adopt":
        raise OSError(
            f"no batch of {folder} has run since the adoption, so its old files are the way back: "
            "start the query with Holdfast first"
        )
    return logged_batches(folder / _RECORDS_FOLDER)


def purge(spark: Any, folder: AnyPath, batches: Sequence[int], *, yes: bool) -> dict[str, Any]:
    """Delete the files that adoptions recorded, or only count them."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    found = []
    with local_spark.java_errors():
        for batch in batches:
            name = absolute(folder).spark_name
            files = spark._jvm.io.holdfast.spark.moves.OldFiles(name, batch, conf)
            files.purge(yes)
            found.append({"batch": batch, "files": files.count(), "bytes": files.bytes()})
    return {"purged": yes, "adoptions": found}


def plan_adoption(folder: AnyPath) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if Holdfast has the state already.

    Raises
    ------
    OSError
        If it cannot be adopted, with what to do.
    """
    logs = move_logs.read(folder)
    newest = logs.newest
    if newest.provider == PROVIDER:
        logs.require_ended()
        return None
    if newest.provider not in _SPARKS.values():
        raise OSError(
            f"{folder} has its state in {printable(newest.provider)}. Only checkpoints of "
            "Spark's own providers can be adopted"
        )
    return _next(logs, Plan(folder, "adopt", newest, newest, PROVIDER, "2"))


def plan_leave(folder: AnyPath, to: str, format: str) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if the provider has the state already.

    Parameters
    ----------
    to : {"rocksdb", "hdfs"}
    format : {"1", "2"}
        The checkpoint format.

    Raises
    ------
    OSError, ValueError
        If the provider cannot go on with it, with what to do.
    """
    if to == "hdfs" and format == "2":
        raise ValueError("the HDFS-backed provider has checkpoint format 1 alone")
    logs = move_logs.read(folder)
    newest = logs.newest
    if newest.provider == _SPARKS[to]:
        logs.require_ended()
        return None
    logs.require_holdfast()
    if parked_partitions(folder):
        raise OSError(
            f"{folder} has parked partitions, whose rows would be lost: 'holdfast parked {folder}' "
            "shows them. Let the query process them, or skip the rows, and try again"
        )
    command = f"leave --to {to} --format {format}"
    return _next(logs, Plan(folder, command, newest, newest, _SPARKS[to], format))


def plan_undo(folder: AnyPath) -> Plan | None:
    """Read the logs of a checkpoint. Returns None if the adoption is undone already.

    Raises
    ------
    OSError
        If the newest batch is no adoption.
    """
    logs = move_logs.read(folder)
    newest = logs.newest
    command = newest.conf.get(MOVE_KEY)
    if command == "undo":
        logs.require_ended()
        return None
    logs.require_holdfast()
    if command != "adopt":
        raise OSError(
            f"the newest batch of {folder} is no adoption. What came after it would be lost: use "
            "'holdfast leave'"
        )
    base = logs.before()
    return _next(logs, Plan(folder, "undo", newest, base, base.provider, base.format))


def _next(logs: Logs, plan: Plan) -> Plan:
    logs.require_next(plan.changes)
    return plan


def move(spark: Any, plan: Plan, *, yes: bool, output: AnyPath | None = None) -> dict[str, Any]:
    """Copy the state and publish the batch, or only read one partition of each operator.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        A session with Holdfast's settings.
    yes : bool
        False to change nothing.
    output : AnyPath, optional
        The folder that Spark's file sink writes.

    Returns
    -------
    dict
        The document that ``--json`` prints.
    """
    base = plan.base
    with local_spark.java_errors():
        copy = spark._jvm.io.holdfast.spark.moves.StateCopy(
            spark._jsparkSession,
            absolute(plan.folder).spark_name,
            publishing.of_java(spark, plan.newest),
            publishing.of_java(spark, base),
            plan.command,
            plan.provider,
            plan.format,
        )
        if output is not None:
            copy.sink(publishing.sink_log(spark, plan.folder, output, plan.newest))
        begin = time.monotonic()
        if yes:
            try:
                operators = json.loads(publishing.watched(spark, copy, lambda: copy.run(True)))
                publishing.publish(copy, plan.folder, plan.number)
            except BaseException:
                copy.discard()
                raise
            ms = round((time.monotonic() - begin) * 1000)
        else:
            operators = json.loads(copy.run(False))
            ms = _extrapolate(operators) // spark.sparkContext.defaultParallelism
    return documents.of_move(plan.number, base.provider, plan.provider, operators, ms=ms, moved=yes)


def _extrapolate(operators: list[dict[str, Any]]) -> int:
    """Take the partitions of an operator for as large as the one that was read.

    Returns
    -------
    int
        How long one core would copy all, in milliseconds.
    """
    ms = 0
    for one in operators:
        one["rows"] *= one["partitions"]
        one["bytes"] *= one["partitions"]
        ms += one["ms"] * one["partitions"] * _READS
    return ms
