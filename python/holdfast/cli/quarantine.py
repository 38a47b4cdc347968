"""``holdfast quarantine``: the regions of a pipeline in quarantine, and the rows that they owe."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from typing import TYPE_CHECKING, Any

from holdfast._core import CheckpointMetadata
from holdfast.cli import documents, folders, parked_rows, report, tables
from holdfast.regions.checkpoint.quarantine import owed_rows
from holdfast.regions.checkpoint.read import checkpoint_ids, choose
from holdfast.regions.files.folders import CheckpointFolders

if TYPE_CHECKING:
    import pyarrow as pa


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of ``holdfast quarantine``, and its commands."""
    folders.add_argument(command, of=" of the pipeline")
    commands = command.add_subparsers(metavar="show")
    shown = commands.add_parser("show", help="write the rows that a region owes to stdout")
    shown.add_argument("--region", required=True, metavar="NAME")
    shown.add_argument(
        "--rows", choices=parked_rows.FORMATS, default="json", help="(default: %(default)s)"
    )
    shown.set_defaults(run=show)


def print_regions(arguments: argparse.Namespace) -> None:
    """Print the regions in quarantine, with the error of each, and since when it fails."""
    found, latest = _latest(arguments)
    document = documents.of_quarantine(latest)
    if not document["quarantined"]:
        print(f"holdfast: nothing is in quarantine in {found.root}", file=sys.stderr)
    report.print_either(document, tables.of_quarantine, json=arguments.json)


def show(arguments: argparse.Namespace) -> None:
    """Write the rows that a region in quarantine owes, oldest first."""
    parked_rows.require_no_terminal(arguments.rows)
    rows = owed_rows(*_latest(arguments), arguments.region)
    if arguments.rows == "json":
        _print_json(rows)
    else:
        parked_rows.write_bytes(rows, arguments.rows)


def _latest(arguments: argparse.Namespace) -> tuple[CheckpointFolders, CheckpointMetadata]:
    found = CheckpointFolders(folders.given(arguments.folder))
    return found, found.read(choose(checkpoint_ids(found.root), None, found.root))


def _print_json(rows: pa.Table) -> None:
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            print(json.dumps(row, default=_plain, separators=(",", ":")))


def _plain(value: Any) -> str:
    """Return a value that JSON does not have as text; bytes as base64, as Spark does."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
