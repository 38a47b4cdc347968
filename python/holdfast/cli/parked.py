"""``holdfast parked``: pending rows of parked partitions, and moving them out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.cli import dead_letters, folders, parked_rows
from holdfast.cli.output import documents, exported_rows, report, tables
from holdfast.cli.output.tables import Table
from holdfast.files.paths import AnyPath, absolute
from holdfast.files.skips import ROW
from holdfast.queries.folder import read_query_checkpoint
from holdfast.queries.parked import (
    ParkedPartition,
    Skip,
    parked_partitions,
    read_skips,
    unfinished_batch,
    write_skips,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Column in addition to those of the rows.
BATCH: Final = "_batch"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast parked`` and ``skip``."""
    folders.add_argument(command, of=" of the query")
    command.add_argument(
        "--rows",
        choices=exported_rows.FORMATS,
        help="write the rows that wait to stdout, which takes a local session of Spark",
    )
    skipped = command.add_subparsers(metavar="skip").add_parser(
        "skip",
        help="move rows of a parked partition to dead letters, so that the others can be processed",
    )
    skipped.add_argument("--partition", type=int, required=True, metavar="P")
    skipped.add_argument(
        "--where",
        required=True,
        metavar="EXPR",
        help="the rows: an expression of Spark SQL over the columns that --rows writes",
    )
    dead_letters.add_arguments(skipped)
    skipped.set_defaults(run=skip)


def show(arguments: argparse.Namespace) -> None:
    """Print the parked partitions of a query, or with ``--rows`` their pending rows."""
    folder = folders.query(arguments.folder)
    parked = parked_partitions(folder)
    if not parked:
        print(f"holdfast: nothing is parked in {folder}", file=sys.stderr)
    if arguments.rows is not None:
        if parked:
            parked_rows.write(folder, parked, arguments.rows)
        return
    report.print_either(documents.of_parked(parked), tables.of_parked, json=arguments.json)


def skip(arguments: argparse.Namespace) -> None:
    """Move rows of a parked partition to dead letters; without ``--yes``, only print how many."""
    folder = folders.query(arguments.folder)
    letters = absolute(folders.given(arguments.dead_letter))
    if arguments.yes:
        finish(folder, arguments.partition)
    elif any(not one.done for one in read_skips(folder)):
        print("holdfast: an earlier skip has not finished; --yes finishes it", file=sys.stderr)
    parked = [one for one in parked_partitions(folder) if one.partition == arguments.partition]
    if not parked:
        raise ValueError(f"partition {arguments.partition} is not parked in {folder}")
    matching = parked_rows.matching(folder, parked, arguments.where)
    numbers = _numbers(matching)
    of_batches = [
        [one.batch, one.rows - one.skipped_rows, len(numbers.get(one.batch, ()))]
        for one in parked[0].inputs
    ]
    report.print_table(Table(["batch", "rows", "matching"], of_batches, frozenset()))
    # The message on stderr is about the table.
    sys.stdout.flush()
    if not arguments.yes:
        print("holdfast: nothing was changed; --yes moves the matching rows", file=sys.stderr)
    elif matching.num_rows:
        file = move(folder, parked[0], matching, letters)
        print(f"holdfast: {matching.num_rows} rows are in {file}", file=sys.stderr)


def _numbers(matching: pa.Table) -> Mapping[int, Sequence[int]]:
    """Return the numbers of rows by batch."""
    return dead_letters.numbers_by(matching[BATCH].to_pylist(), matching[ROW].to_pylist())


def move(folder: AnyPath, parked: ParkedPartition, matching: pa.Table, letters: AnyPath) -> AnyPath:
    """Move rows with their numbers to a new file of dead letters, whose path is returned.

    The file gets its name only when it is certain that no batch gives the rows to the sink. The
    query does not continue before. `finish` ends an interrupted call, or takes it back.

    Raises an OSError if a batch of the query has begun and not ended or has replayed the rows, or a
    file cannot be written.
    """
    _refuse_unfinished(folder, parked.partition)
    query = read_query_checkpoint(folder).query
    name = f"{query}-{parked.operator}-{parked.partition}"
    file = dead_letters.stage(letters, name, matching, parked.error)
    numbers = _numbers(matching)
    new = [
        Skip(
            operator=parked.operator,
            partition=parked.partition,
            batch=one.batch,
            segment=one.segment,
            rows=dead_letters.ranges(numbers[one.batch]),
            dead_letters=str(file),
            done=False,
        )
        for one in parked.inputs
        if one.batch in numbers
    ]
    write_skips(folder, [*read_skips(folder), *new])
    finish(folder, parked.partition)
    if not file.exists():
        raise OSError(
            f"a batch processed parked rows of partition {parked.partition} meanwhile, so "
            "nothing was moved. Stop the query, and try again"
        )
    return file


def _refuse_unfinished(folder: AnyPath, partition: int) -> None:
    if (batch := unfinished_batch(folder, partition)) is not None:
        raise OSError(
            f"batch {batch} of the query has begun and not ended, and may give the parked rows to "
            "the sink. If the query runs, stop it, and try again. If it has stopped, start it once "
            "so that the batch ends. A higher limit or isolation_rerun helps if it cannot end"
        )


def finish(folder: AnyPath, partition: int) -> None:
    """End interrupted skips; OSError if they are taken back, since the sink may get their rows."""
    skips = read_skips(folder)
    begun = [one for one in skips if one.partition == partition and not one.done]
    if not begun:
        return
    waiting = {
        (one.operator, input.segment) for one in parked_partitions(folder) for input in one.inputs
    }
    files = {one.dead_letters for one in begun}
    wait = all((one.operator, one.segment) in waiting for one in begun)
    if not wait or unfinished_batch(folder, partition) is not None:
        # A batch that began before the skip may have given the rows to the sink.
        write_skips(folder, [one for one in skips if one not in begun])
        for path in files:
            dead_letters.take_back(path)
        _refuse_unfinished(folder, partition)
        return
    for path in files:
        dead_letters.publish(path)
    write_skips(folder, [replace(one, done=True) if one in begun else one for one in skips])
