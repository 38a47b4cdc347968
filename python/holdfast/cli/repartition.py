"""``holdfast repartition``: another number of partitions for the state of a query."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from holdfast.cli import folders, local_spark, moves, publishing
from holdfast.cli.java import quick_start
from holdfast.cli.output import report
from holdfast.cli.output.tables import Table


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
    output = publishing.given_output(arguments)
    with (
        local_spark.session(
            "to read state", local_spark.needed(), master=arguments.master
        ) as spark,
        _job(spark, plan := publishing.plan(spark, folder, "repartition", wanted)) as job,
    ):
        old, number = plan.newest().partitions(), plan.number()
        is_there = old == wanted
        changed = arguments.yes and not is_there
        if not is_there:
            refused = plan.tooManyParents(job.parents())
            if refused and not arguments.rewrite:
                raise ValueError(refused)
            if not arguments.rewrite:
                plan.requireRows()
            job.check()
        if output is not None:
            log = publishing.sink_log(spark, folder, output, number - 1)
            job.sink(log)
            if arguments.yes and is_there:
                log.complete(number - 1)
        if changed:
            if arguments.rewrite:
                publishing.watched(spark, job, job.write)
            else:
                job.views()
            publishing.publish(job, folder, number)
        if arguments.yes:
            # A command that was killed may have left one.
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


@contextmanager
def _job(spark: Any, plan: Any) -> Iterator[Any]:
    """Open Spark's part of the command."""
    with local_spark.java_errors():
        yield publishing.java_moves(spark).Repartition(spark._jsparkSession, plan)
