"""Commands that look at a checkpoint folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast._checks import require_int
from holdfast._core import CheckpointMetadata, NewerFormatError
from holdfast.cli import details, folders
from holdfast.cli.output import documents, report, tables
from holdfast.files.paths import AnyPath
from holdfast.files.printable import printable
from holdfast.files.verdicts import UNREADABLE, Verdict
from holdfast.queries.folder import (
    STATE_FILES_FOLDER,
    QueryCheckpoint,
    is_query_checkpoint,
    read_query_checkpoint,
)
from holdfast.queries.logs import committed_batches, entry_of
from holdfast.queries.state import StatefulOperator, StateOfQuery, require_committed
from holdfast.regions.base.clock import now_ms
from holdfast.regions.checkpoint.history import read_history
from holdfast.regions.checkpoint.read import checkpoint_ids, summarise_all
from holdfast.regions.checkpoint.verify import Verification
from holdfast.regions.files.folders import HISTORY_FOLDER, CheckpointFolders
from holdfast.regions.splits.assignment import skipped_splits

_DAY_MS = 24 * 60 * 60 * 1000


def show(arguments: argparse.Namespace) -> None:
    """Print a folder's kind, or by id a checkpoint or batch; more of each with ``--details``."""
    folder = folders.given(arguments.folder)
    has_state = _has_state(folder)
    is_query = is_query_checkpoint(folder) and arguments.id is None
    wrong = []
    if is_query:
        wrong = _show_query(read_query_checkpoint(folder), json=arguments.json)
    if has_state and arguments.details:
        wrong = [*dict.fromkeys([*wrong, *details.print_query(folder, arguments.id)])]
    elif has_state and arguments.id is not None:
        _show_batch(folder, arguments.id, json=arguments.json)
    elif not is_query:
        _show_pipeline(folder, arguments)
    report.refuse(wrong, "parts of the checkpoint cannot be read:")


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


def _show_query(query: QueryCheckpoint, *, json: bool) -> list[str]:
    """Print a query and its stateful operators; returns what cannot be read, a line each."""
    if not json:
        print(f"holdfast: {printable(query.describe())}", file=sys.stderr)
    operators, wrong = list[StatefulOperator](), list[str]()
    try:
        if query.committed is not None:
            operators.extend(StateOfQuery(query.folder).operators(query.committed))
    except (*UNREADABLE, NewerFormatError) as error:
        wrong.append(str(error))
    document = documents.of_query(query, operators)
    report.print_either(document, tables.of_query, json=json)
    if operators and not json:
        title = f"stateful operators at batch {query.committed}"
        report.print_section(title, tables.of_operators(document))
    return wrong


def _show_batch(folder: AnyPath, batch: int, *, json: bool) -> None:
    """Print the segments that a batch of a query consists of."""
    require_committed(folder, batch, committed_batches(folder))
    segments = list(StateOfQuery(folder).segments(batch))
    report.print_either(documents.of_segments(batch, segments), tables.of_segments, json=json)
    unreadable = [segment.message for segment in segments if segment.message is not None]
    report.refuse(unreadable, "segments cannot be read:")


def _has_state(folder: AnyPath) -> bool:
    """Return whether a folder belongs to a query with state in Holdfast."""
    return is_query_checkpoint(folder) and (folder / STATE_FILES_FOLDER).is_dir()


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


def verify(arguments: argparse.Namespace) -> None:
    """Read everything that checkpoints or batches need, and print the damage."""
    folder = folders.given(arguments.folder)
    if _has_state(folder):
        _verify_query(folder, json=arguments.json)
        return
    ids = checkpoint_ids(folder)
    verification = Verification(folder, arguments.pipeline)
    with report.progress("checkpoint") as start:
        verdicts = [verification.verify(id, start(id)) for id in ids]
    found = documents.of_verdicts(verdicts, number="id", part="region")
    if arguments.json:
        documents.print_document({"checkpoints": found})
    else:
        _print_verdicts(found, "checkpoint", number="id", parts="regions")
    if damaged := _damaged(verdicts):
        raise OSError(f"{damaged} of {len(verdicts)} checkpoints in {folder} are damaged")


def _verify_query(folder: AnyPath, *, json: bool) -> None:
    """Read the state of all batches of a query, and print the damage."""
    state, batches = StateOfQuery(folder), committed_batches(folder)
    with report.progress("batch") as start:
        found = [state.verify(batch, start(batch)) for batch in batches]
    # A running query may have deleted the batch.
    verdicts = [one for one in found if not one.damage or entry_of(folder, one.id).exists()]
    read = documents.of_verdicts(verdicts, number="batch", part="partition")
    if json:
        documents.print_document({"batches": read})
    else:
        _print_verdicts(read, "batch", number="batch", parts="partitions")
    if not found:
        print(
            f"holdfast: {folder} has no batch in the commit log: nothing was read", file=sys.stderr
        )
    if damaged := _damaged(verdicts):
        raise OSError(f"state of {damaged} of {len(verdicts)} batches in {folder} is damaged")


def _print_verdicts(
    verdicts: Sequence[Mapping[str, Any]], of: str, *, number: str, parts: str
) -> None:
    """Print one line per checkpoint or batch, then one per thing that cannot be read."""
    report.print_table(tables.of_verdicts(verdicts, number=number, parts=parts))
    for verdict in verdicts:
        for damage in verdict["damage"]:
            print(f"{of} {verdict[number]}: {printable(damage['message'])}")


def _damaged(verdicts: Sequence[Verdict]) -> int:
    return sum(bool(verdict.damage) for verdict in verdicts)
