"""``holdfast quarantine``: regions in quarantine, and moving their pending rows out."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast._core import CheckpointMetadata
from holdfast.cli import dead_letters, folders, local_spark, parked_rows
from holdfast.cli.output import documents, exported_rows, report, tables
from holdfast.cli.output.tables import Table
from holdfast.files.paths import AnyPath, absolute
from holdfast.files.skips import ROW, read_records, write_records
from holdfast.regions.checkpoint.quarantine import CHECKPOINT, PLACE, owed_rows, placed_rows
from holdfast.regions.checkpoint.read import checkpoint_ids, choose
from holdfast.regions.checkpoint.skips import SkippedRows, skipped_rows
from holdfast.regions.driver.metrics import level
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.files.lock import lock_folder

if TYPE_CHECKING:
    import pyarrow as pa


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast quarantine``, and its commands."""
    folders.add_argument(command, of=" of the pipeline")
    commands = command.add_subparsers(metavar="show | skip")
    shown = commands.add_parser("show", help="write the rows that a region owes to stdout")
    shown.add_argument("--region", required=True, metavar="NAME")
    shown.add_argument(
        "--rows", choices=exported_rows.FORMATS, default="json", help="(default: %(default)s)"
    )
    shown.set_defaults(run=show)
    skipped = commands.add_parser(
        "skip", help="move rows of a region to dead letters, so that the others can be processed"
    )
    skipped.add_argument("--region", required=True, metavar="NAME")
    chosen = skipped.add_mutually_exclusive_group(required=True)
    chosen.add_argument(
        "--where",
        metavar="EXPR",
        help="the rows: an expression of Spark SQL over the columns that 'show' writes",
    )
    chosen.add_argument(
        "--rows", metavar="NUMBERS", help="the rows by the column _row that 'show' writes: 3,8-10"
    )
    dead_letters.add_arguments(skipped)
    skipped.set_defaults(run=skip)


def print_regions(arguments: argparse.Namespace) -> None:
    """Print the regions in quarantine, with error and time of the first failure."""
    found, latest = _latest(arguments)
    document = documents.of_quarantine(latest, skipped_rows(found))
    if not document["quarantined"]:
        print(f"holdfast: nothing is in quarantine in {found.root}", file=sys.stderr)
    report.print_either(document, tables.of_quarantine, json=arguments.json)


def show(arguments: argparse.Namespace) -> None:
    """Write the pending rows of a region in quarantine, oldest first."""
    exported_rows.require_no_terminal(arguments.rows)
    exported_rows.write(owed_rows(*_latest(arguments), arguments.region), arguments.rows)


def skip(arguments: argparse.Namespace) -> None:
    """Move pending rows of a region to dead letters; without ``--yes``, only print how many."""
    found, _ = _latest(arguments)
    letters = absolute(folders.given(arguments.dead_letter))
    with lock_folder(found.lock) if arguments.yes else nullcontext():
        if arguments.yes:
            finish(found)
        _, latest = _latest(arguments)
        owed = placed_rows(found, latest, arguments.region)
        matching = _chosen(owed, arguments)
        report.print_table(_counted(owed, matching))
        # The message on stderr is about the table.
        sys.stdout.flush()
        if not arguments.yes:
            print("holdfast: nothing was changed; --yes moves the matching rows", file=sys.stderr)
        elif matching.num_rows:
            file = move(found, latest, arguments.region, matching, letters)
            print(f"holdfast: {matching.num_rows} rows are in {file}", file=sys.stderr)


def _chosen(owed: pa.Table, arguments: argparse.Namespace) -> pa.Table:
    """Return the rows that the arguments name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if arguments.where is None:
        numbers = _numbers(arguments.rows, owed.num_rows)
    else:
        with local_spark.session("for --where", {}) as spark:
            rows = spark.createDataFrame(owed.drop_columns([PLACE]))
            numbers = parked_rows.selected(rows, arguments.where)[ROW].to_pylist()
    return owed.filter(pc.is_in(owed[ROW], value_set=pa.array(numbers, pa.int64())))


def _numbers(text: str, owed: int) -> list[int]:
    """Return the numbers of a text such as ``3,8-10``, ascending; `owed` is how many there are."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--rows {text}: expected numbers and ranges, as in 3,8-10")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise ValueError(f"--rows {text}: the range {part.strip()} ends before it begins")
        if end >= owed:
            raise ValueError(f"--rows {text}: the region owes {owed} rows")
        found.update(range(begin, end + 1))
    return sorted(found)


def _counted(owed: pa.Table, matching: pa.Table) -> Table:
    """Return a line for each checkpoint that stored rows."""
    rows, chosen = (Counter(table[CHECKPOINT].to_pylist()) for table in (owed, matching))
    return Table(
        ["checkpoint", "rows", "matching"],
        [[checkpoint, rows[checkpoint], chosen[checkpoint]] for checkpoint in sorted(rows)],
        frozenset(),
    )


def move(
    found: CheckpointFolders,
    latest: CheckpointMetadata,
    region: str,
    matching: pa.Table,
    letters: AnyPath,
) -> AnyPath:
    """Move rows of `placed_rows` to a new file of dead letters, whose path is returned.

    The folder of the checkpoint is locked. If the process is killed, the rows are in the file or
    still pending, and a start is refused until `finish` has ended the call.

    Raises a ValueError if a row waits between two operators.
    """
    if matching[PLACE].null_count:
        raise ValueError(
            f"{matching[PLACE].null_count} of the rows wait between two operators, and only rows "
            "that no operator has seen can be moved"
        )
    name = f"{found.read_identity()}-{level(region)}"
    error = latest.regions[region].cause
    file = dead_letters.stage(letters, name, matching.drop_columns([PLACE]), error)
    numbers = dead_letters.numbers_by(matching[CHECKPOINT].to_pylist(), matching[PLACE].to_pylist())
    new = [
        SkippedRows(region, created, dead_letters.ranges(rows), str(file), done=False)
        for created, rows in numbers.items()
    ]
    write_records(found.skipped, [*read_records(found.skipped, SkippedRows), *new])
    finish(found)
    return file


def finish(found: CheckpointFolders) -> None:
    """End a call of `move` that was interrupted."""
    skips = read_records(found.skipped, SkippedRows)
    if begun := {one.dead_letters for one in skips if not one.done}:
        for path in begun:
            dead_letters.publish(path)
        write_records(found.skipped, [replace(one, done=True) for one in skips])


def _latest(arguments: argparse.Namespace) -> tuple[CheckpointFolders, CheckpointMetadata]:
    found = CheckpointFolders(folders.given(arguments.folder))
    return found, found.read(choose(checkpoint_ids(found.root), None, found.root))
