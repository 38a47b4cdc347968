"""``holdfast rollback``: a query goes on from the state and the positions of an earlier batch."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from holdfast.cli import folders, local_spark, moves, publishing
from holdfast.cli.java import quick_start
from holdfast.cli.output import report, tables
from holdfast.files.paths import AnyPath, absolute
from holdfast.queries.leases import ROLLBACK, Wanted, held_tag, is_kept, take
from holdfast.queries.logs import committed_batches, read_commit
from holdfast.queries.state import require_committed


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast rollback``."""
    moves.add_arguments(command)
    command.add_argument(
        "--to", required=True, metavar="BATCH|TAG", help="the batch, or the name of a tag"
    )


def run(arguments: argparse.Namespace) -> None:
    """Publish batches that have the state and the positions of an earlier one."""
    folder, to = absolute(folders.query(arguments.folder)), arguments.to
    output = publishing.given_output(arguments)
    with (
        quick_start(),
        local_spark.session(
            "to publish a batch", local_spark.needed(), master=arguments.master
        ) as spark,
    ):
        newest = publishing.read_logs(spark, folder).committed()
        document = roll_back(spark, folder, to, yes=arguments.yes, output=output)
        report.print_either(document, tables.of_values, json=arguments.json)
    sys.stdout.flush()
    number, back = document["batch"], document["state_of"]
    if number == newest:
        print(f"holdfast: batch {number} has this state: there is nothing to do", file=sys.stderr)
        return
    if output is None:
        publishing.say_unknown(number, by_query=True, yes=arguments.yes)
    said = (
        f"batch {number} has the state of batch {back}: start the query"
        if arguments.yes
        else "nothing was changed; --yes changes the checkpoint"
    )
    print(
        f"holdfast: the query reads its sources again from the end of batch {back}, so they must "
        f"still have these rows. Its sinks get rows of batches {back + 1} to {newest} once more, "
        f"under numbers from {number + 1} on. 'holdfast rollback --to {newest}' is the way back "
        f"while that batch is retained\nholdfast: {said}",
        file=sys.stderr,
    )


def roll_back(
    spark: Any, folder: AnyPath, to: str, *, yes: bool, output: AnyPath | None = None
) -> dict[str, Any]:
    """Publish two batches, if `yes`; `spark` has Holdfast's settings. Returns the document.

    Raises an OSError with advice if the checkpoint is refused, and a FileNotFoundError without
    such a batch or tag.
    """
    tag = None if to.isdecimal() else to
    source, back = (folder, int(to)) if tag is None else held_tag(folder, tag)
    if tag is None:
        require_committed(folder, back, committed_batches(folder))
    with local_spark.java_errors():
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        path = spark._jvm.org.apache.hadoop.fs.Path(source.spark_name)
        base = spark._jvm.io.holdfast.spark.sparklog.Batch.read(path, back, conf)
    newest = publishing.read_logs(spark, folder).committed()
    plan = publishing.plan(spark, folder, "rollback", base, to)
    if plan is None or not yes:
        number = newest if plan is None else newest + 2
        return {"batch": number, "state_of": back, "changed": False}
    # Clean-ups go by the oldest batch, and an older one does not need what the new ones do.
    wanted = Wanted(
        folder,
        f"{ROLLBACK}{plan.number()}",
        back,
        lambda: read_commit(source, back),
        until=plan.number(),
    )
    take(wanted, is_there=lambda: is_kept(folder, back, tag, source))
    while plan is not None:
        number = plan.number()
        with local_spark.java_errors():
            job = publishing.java_moves(spark).Rollback(spark._jsparkSession, plan)
            if output is not None:
                job.sink(publishing.sink_log(spark, folder, output, number - 1))
            job.ids()
            publishing.publish(job, folder, number)
        plan = publishing.plan(spark, folder, "rollback", base, to)
    return {"batch": number, "state_of": back, "changed": True}
