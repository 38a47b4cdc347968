"""``holdfast repartition``: another number of partitions for the state of a query."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from holdfast.cli import folders, local_spark, moves, publishing
from holdfast.cli.java import quick_start
from holdfast.cli.output import report
from holdfast.cli.output.tables import Table
from holdfast.files.paths import AnyPath, absolute
from holdfast.queries import move_logs
from holdfast.queries.logs import MOVE_KEY, PARTITIONS_KEY
from holdfast.queries.move_logs import Logs
from holdfast.queries.parked import parked_partitions

#: Old partitions that a new one may have to read.
PARENTS_MAX: Final = 16

_STRICT: Final = "spark.sql.streaming.statefulOperator.useStrictDistribution"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast repartition``."""
    moves.add_arguments(command)
    command.add_argument(
        "--partitions", type=int, required=True, metavar="M", help="the new number of partitions"
    )
    command.add_argument(
        "--rewrite",
        action="store_true",
        help="read all of the state now (default: the first batch on the new partitions moves the "
        "rows)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Give the state of a query another number of partitions."""
    with nullcontext() if arguments.rewrite else quick_start():
        _run(arguments)


def _run(arguments: argparse.Namespace) -> None:
    folder = folders.query(arguments.folder)
    wanted: int = arguments.partitions
    if wanted < 1:
        raise ValueError(f"--partitions {wanted}: expected a positive number")
    logs = move_logs.read(folder)
    old = int(logs.newest.conf[PARTITIONS_KEY])
    _require_free(folder, logs, wanted)
    number = logs.newest.number + 1
    output = publishing.given_output(arguments)
    with (
        local_spark.session(
            "to read state", local_spark.needed(), master=arguments.master
        ) as spark,
        _job(spark, folder, logs, wanted) as job,
    ):
        is_there = old == wanted
        changed = arguments.yes and not is_there
        if not is_there:
            parents: int = job.parents()
            if parents > PARENTS_MAX and not arguments.rewrite:
                raise ValueError(
                    f"--partitions {wanted}: each new partition would have to read {parents} of "
                    f"the {old} old ones, and the most is {PARENTS_MAX}. Choose a number with a "
                    "larger common divisor, or add --rewrite"
                )
            if not arguments.rewrite and logs.newest.has_views:
                raise OSError(
                    f"{folder} has got {old} partitions and no batch since. Start the query for "
                    "one batch first, which moves its rows, or add --rewrite"
                )
            job.check()
        if output is not None:
            log = publishing.sink_log(spark, folder, output, logs.newest)
            job.sink(log)
            if arguments.yes and is_there:
                log.complete(logs.newest.number)
        if changed:
            if arguments.rewrite:
                publishing.watched(spark, job, job.write)
            else:
                job.views()
            publishing.publish(job, folder, number)
        if arguments.yes:
            # A command that was killed may have left it.
            job.describe()
        document = {
            "batch": number - is_there,
            "partitions": old,
            "new_partitions": wanted,
            "operators": json.loads(job.operators()),
            "rewritten_rows": job.rows() if changed and arguments.rewrite else None,
            "changed": changed,
        }
        report.print_either(document, _table, json=arguments.json)
    sys.stdout.flush()
    if output is None and not is_there:
        publishing.say_unknown(number, by_query=True, yes=arguments.yes)
    if is_there:
        said = f"the state has {wanted} partitions already"
    elif changed:
        said = f"batch {number} has {wanted} partitions: start the query"
    else:
        said = "nothing was changed; --yes changes the checkpoint"
    print(f"holdfast: {said}", file=sys.stderr)


def _table(document: Mapping[str, Any]) -> Table:
    columns = ["operator", "name", "stores", "partitions", "new_partitions"]
    rows = [[one[column] for column in columns] for one in document["operators"]]
    return Table(columns, rows, frozenset({"name"}))


def _require_free(folder: AnyPath, logs: Logs, wanted: int) -> None:
    """Refuse a query in the middle of a batch, and one with parked partitions."""
    logs.require_holdfast()
    command = f"repartition --partitions {wanted}"
    logs.require_next({PARTITIONS_KEY: str(wanted), MOVE_KEY: command})
    # Queries that began on an older Spark have none.
    if logs.newest.conf.get(_STRICT) != "true":
        raise OSError(
            f"{folder} was not made with {_STRICT}=true, so Spark may have partitioned its state "
            "by a part of the key. It cannot get another number of partitions"
        )
    if parked_partitions(folder):
        raise OSError(
            f"{folder} has parked partitions, whose input waits. 'holdfast parked {folder}' shows "
            "why. Let the query process it, or skip the rows"
        )


@contextmanager
def _job(spark: Any, folder: AnyPath, logs: Logs, wanted: int) -> Iterator[Any]:
    """Open Spark's part of the command."""
    with local_spark.java_errors():
        yield spark._jvm.io.holdfast.spark.moves.Repartition(
            spark._jsparkSession,
            absolute(folder).spark_name,
            publishing.of_java(spark, logs.newest),
            wanted,
        )
