"""Commands that look at a checkpoint folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from holdfast._core import CheckpointMetadata
from holdfast.cli import details, folders
from holdfast.cli.output import documents, report, tables
from holdfast.files.paths import AnyPath
from holdfast.files.printable import printable
from holdfast.files.verdicts import Verdict
from holdfast.queries.folder import (
    STATE_FILES_FOLDER,
    QueryCheckpoint,
    is_query_checkpoint,
    read_query_checkpoint,
)
from holdfast.queries.logs import committed_batches, entry_of
from holdfast.queries.state import StateOfQuery, require_committed
from holdfast.regions.checkpoint.read import checkpoint_ids, summarise_all
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.splits.assignment import skipped_splits


def show(arguments: argparse.Namespace) -> None:
    """Print what a folder is, or with an id the regions of a checkpoint or segments of a batch.

    With ``--details``, print also what became of attempts, and where the bytes are.
    """
    folder = folders.given(arguments.folder)
    has_state = _has_state(folder)
    is_query = is_query_checkpoint(folder) and arguments.id is None
    if is_query:
        _show_query(read_query_checkpoint(folder), json=arguments.json)
    if has_state and arguments.details:
        wrong = details.print_query(folder, arguments.id)
        report.refuse(wrong, "parts of the checkpoint cannot be read:")
    elif has_state and arguments.id is not None:
        _show_batch(folder, arguments.id, json=arguments.json)
    elif not is_query:
        _show_pipeline(folder, arguments)


def _show_pipeline(folder: AnyPath, arguments: argparse.Namespace) -> None:
    ids = checkpoint_ids(folder)
    asked = None if arguments.id is None else CheckpointFolders(folder).read(arguments.id)
    if asked is not None and not arguments.details:
        _show_regions(asked, json=arguments.json)
        return
    summaries, unreadable = summarise_all(folder, ids)
    document = documents.of_checkpoints(summaries)
    if arguments.json:
        documents.print_document(document)
        report.refuse(unreadable, "checkpoints cannot be read:")
        return
    report.print_table(tables.of_checkpoints(document))
    shown = asked or (summaries[-1].metadata if summaries else None)
    if shown is not None:
        _print_waiting(shown)
        report.print_beginning(shown)
    if arguments.details:
        wrong = [*unreadable, *details.print_pipeline(folder, summaries, shown)]
        report.refuse(wrong, "parts of the checkpoint cannot be read:")
    report.refuse(unreadable, "checkpoints cannot be read:")


def _show_regions(metadata: CheckpointMetadata, *, json: bool) -> None:
    report.print_either(documents.of_regions(metadata), tables.of_regions, json=json)
    if not json:
        _print_waiting(metadata)


def _print_waiting(metadata: CheckpointMetadata) -> None:
    """Print the events that wait for regions, and the splits of files that are skipped."""
    if events := documents.events_of(metadata):
        report.print_section(
            f"events of coordinators that wait for their region in checkpoint {metadata.id}",
            tables.of_events(events),
        )
    if skipped := skipped_splits(metadata):
        print(f"\nsplits of files that checkpoint {metadata.id} skips:")
        report.print_table(tables.of_skipped(skipped))


def _show_query(query: QueryCheckpoint, *, json: bool) -> None:
    if not json:
        print(f"holdfast: {printable(query.describe())}", file=sys.stderr)
    report.print_either(documents.of_query(query), tables.of_query, json=json)


def _show_batch(folder: AnyPath, batch: int, *, json: bool) -> None:
    """Print the segments that a batch of a query consists of."""
    require_committed(folder, batch, committed_batches(folder))
    segments = list(StateOfQuery(folder).segments(batch))
    report.print_either(documents.of_segments(batch, segments), tables.of_segments, json=json)
    unreadable = [segment.message for segment in segments if segment.message is not None]
    report.refuse(unreadable, "segments cannot be read:")


def _has_state(folder: AnyPath) -> bool:
    """Return whether a folder is that of a query whose state is in Holdfast."""
    return is_query_checkpoint(folder) and (folder / STATE_FILES_FOLDER).is_dir()


def verify(arguments: argparse.Namespace) -> None:
    """Read everything that checkpoints or batches need, and print what cannot be read."""
    folder = folders.given(arguments.folder)
    if _has_state(folder):
        _verify_query(folder, json=arguments.json)
        return
    ids = checkpoint_ids(folder)
    verification = Verification(folder, arguments.pipeline)
    with report.progress("checkpoint") as start:
        verdicts = [verification.verify(id, start(id)) for id in ids]
    document = documents.of_verdicts(verdicts)
    if arguments.json:
        documents.print_document(document)
    else:
        found = document["checkpoints"]
        report.print_verdicts(found, number="id", of="checkpoint", parts="regions")
    if damaged := _damaged(verdicts):
        raise OSError(f"{damaged} of {len(verdicts)} checkpoints in {folder} are damaged")


def _verify_query(folder: AnyPath, *, json: bool) -> None:
    """Read the state of all batches of a query, and print what cannot be read."""
    state, batches = StateOfQuery(folder), committed_batches(folder)
    with report.progress("batch") as start:
        found = [state.verify(batch, start(batch)) for batch in batches]
    # A running query may delete a batch meanwhile.
    verdicts = [one for one in found if not one.damage or entry_of(folder, one.id).exists()]
    document = documents.of_batch_verdicts(verdicts)
    if json:
        documents.print_document(document)
    else:
        read = document["batches"]
        report.print_verdicts(read, number="batch", of="batch", parts="partitions")
    if not found:
        print(
            f"holdfast: {folder} has no batch in the commit log: nothing was read", file=sys.stderr
        )
    if damaged := _damaged(verdicts):
        raise OSError(f"state of {damaged} of {len(verdicts)} batches in {folder} is damaged")


def _damaged(verdicts: Sequence[Verdict]) -> int:
    return sum(bool(verdict.damage) for verdict in verdicts)
