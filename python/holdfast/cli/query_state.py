"""The state of an ordinary query, for the commands that look at a checkpoint folder."""

from __future__ import annotations

import sys

from holdfast.cli import documents, report
from holdfast.cli.pages import tables
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.checkpoint.query_folder import STATE_FILES_FOLDER, is_query_checkpoint
from holdfast.regions.checkpoint.query_state import (
    StateOfQuery,
    committed_batches,
    entry_of,
    require_committed,
)


def is_there(folder: AnyPath) -> bool:
    """Return whether a folder is that of a query whose state is in Holdfast."""
    return is_query_checkpoint(folder) and (folder / STATE_FILES_FOLDER).is_dir()


def show(folder: AnyPath, batch: int, *, json: bool) -> None:
    """Print the segments that a batch consists of."""
    require_committed(folder, batch, committed_batches(folder))
    segments = list(StateOfQuery(folder).segments(batch))
    if json:
        documents.print_document(documents.of_segments(batch, segments))
    else:
        report.print_table(tables.of_segments(segments))
    unreadable = [segment.message for segment in segments if segment.message is not None]
    if unreadable:
        raise OSError("\n  ".join([f"{len(unreadable)} segments cannot be read:", *unreadable]))


def verify(folder: AnyPath, *, json: bool) -> None:
    """Read the state of all batches, and print what cannot be read."""
    state = StateOfQuery(folder)
    with report.progress() as bars:
        found = [
            state.verify(batch, bars.start(batch, of="batch"))
            for batch in committed_batches(folder)
        ]
    # The query may be running, and let go of a batch meanwhile.
    verdicts = [
        verdict
        for verdict in found
        if not verdict.damage or entry_of(folder, verdict.batch).exists()
    ]
    if json:
        documents.print_document(documents.of_batch_verdicts(verdicts))
    else:
        report.print_batch_verdicts(verdicts)
    if not found:
        print(
            f"holdfast: {folder} has no batch in the commit log: nothing was read", file=sys.stderr
        )
    damaged = [verdict for verdict in verdicts if verdict.damage]
    if damaged:
        raise OSError(f"state of {len(damaged)} of {len(verdicts)} batches in {folder} is damaged")
