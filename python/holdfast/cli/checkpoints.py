"""Commands that look at a checkpoint folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.cli import documents, folders, html, query_state, report
from holdfast.cli.pages import tables
from holdfast.regions.checkpoint.query_folder import (
    QueryCheckpoint,
    is_query_checkpoint,
    read_query_checkpoint,
)
from holdfast.regions.checkpoint.read import (
    checkpoint_ids,
    read_metadata,
    refuse,
    summarise_all,
)
from holdfast.regions.checkpoint.verify import Verification


def show(arguments: argparse.Namespace) -> None:
    """Print what a folder is, or with an id the regions of a checkpoint or segments of a batch.

    With ``--html``, write a page on all of that instead.
    """
    folder = folders.given(arguments.folder)
    if arguments.html is not None:
        html.show(folder, arguments.id, Path(arguments.html))
        return
    if arguments.id is None and is_query_checkpoint(folder):
        _show_query(read_query_checkpoint(folder), json=arguments.json)
        return
    if query_state.is_there(folder):
        query_state.show(folder, arguments.id, json=arguments.json)
        return
    ids = checkpoint_ids(folder)
    if arguments.id is not None:
        metadata = read_metadata(folder, arguments.id)
        if arguments.json:
            documents.print_document(documents.of_regions(metadata))
        else:
            report.print_table(tables.of_regions([*metadata.regions.values()]))
        return
    summaries, unreadable = summarise_all(folder, ids)
    if arguments.json:
        documents.print_document(documents.of_checkpoints(summaries))
    else:
        report.print_table(tables.of_checkpoints(summaries))
        if summaries:
            report.print_beginning(summaries[-1].metadata)
    refuse(unreadable)


def _show_query(query: QueryCheckpoint, *, json: bool) -> None:
    if json:
        documents.print_document(documents.of_query(query))
    else:
        report.print_query(query)


def verify(arguments: argparse.Namespace) -> None:
    """Read everything that checkpoints or batches need, and print what cannot be read."""
    folder = folders.given(arguments.folder)
    if query_state.is_there(folder):
        query_state.verify(folder, json=arguments.json)
        return
    ids = checkpoint_ids(folder)
    verification = Verification(folder, arguments.pipeline)
    with report.progress() as bars:
        verdicts = [verification.verify(id, bars.start(id)) for id in ids]
    if arguments.json:
        documents.print_document(documents.of_verdicts(verdicts))
    else:
        report.print_verdicts(verdicts)
    damaged = [verdict for verdict in verdicts if verdict.damage]
    if damaged:
        raise OSError(f"{len(damaged)} of {len(verdicts)} checkpoints in {folder} are damaged")
