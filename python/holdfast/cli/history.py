"""The command that prints the attempts of a pipeline."""

from __future__ import annotations

import argparse

from holdfast._checks import require_int
from holdfast.cli import folders
from holdfast.cli.output import documents, report, tables
from holdfast.regions.base.clock import now_ms
from holdfast.regions.checkpoint.history import read_history
from holdfast.regions.files.folders import HISTORY_FOLDER

_DAY_MS = 24 * 60 * 60 * 1000


def print_attempts(arguments: argparse.Namespace) -> None:
    """Print the attempts of a pipeline that ended, also of earlier runs, the newest last."""
    for option in ("last", "days"):
        if (given := getattr(arguments, option)) is not None:
            require_int(f"--{option}", given, at_least=1)
    root = folders.given(arguments.folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} does not exist")
    folder = root / HISTORY_FOLDER
    if not folder.is_dir():
        raise FileNotFoundError(f"{root} holds no history of a regional pipeline")
    since_ms = 0 if arguments.days is None else now_ms() - arguments.days * _DAY_MS
    found = read_history(folder, last=arguments.last, since_ms=since_ms)
    if arguments.json:
        documents.print_document(documents.of_history(found.records))
    else:
        report.print_table(tables.of_attempts(found.records))
    report.refuse(found.damage, "parts of the history cannot be read:")
