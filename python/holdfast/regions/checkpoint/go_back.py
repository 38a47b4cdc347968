"""Going back to an older checkpoint in a pipeline's own folder.

Newer checkpoints, the output they published, and Spark's record of the stream all go back, or rows
would be lost or doubled. The decision is written first, so that after a crash at any moment the
next start finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from holdfast._core import NewerFormatError
from holdfast.files.verdicts import UNREADABLE
from holdfast.regions.base.callbacks import called
from holdfast.regions.checkpoint.stream_log import rewind_stream
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.protocol.orders import OutputPlan
from holdfast.regions.sinks.delivered import last_delivered
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.published import is_published, note_published, staged_by_output
from holdfast.regions.sinks.publisher import named
from holdfast.regions.sinks.sink import sink_name

LOG: Final = logging.getLogger(__name__)


def begin_rewind(folders: CheckpointFolders, checkpoint: int) -> None:
    """Decide for good that the pipeline goes back to a checkpoint that is intact."""
    folders.rewind.replace_text(str(checkpoint))


def finish_rewind(folders: CheckpointFolders, outputs: Sequence[OutputPlan]) -> None:
    """Go back to the checkpoint of `begin_rewind`, if any; an error leaves it to the next start."""
    try:
        checkpoint = int(folders.rewind.read_text())
    except FileNotFoundError:
        return
    newer = [id for id in folders.ids() if id > checkpoint]
    LOG.warning("going back to checkpoint %d: checkpoints %s are given up", checkpoint, newer)
    for output in outputs:
        if again := delivered_again(folders, checkpoint, output.name):
            LOG.warning("going back to checkpoint %d: %s", checkpoint, again)
    metadata = folders.read(checkpoint)
    rewind_stream(folders.stream, metadata.batch_id)
    for output in outputs:
        sink = output.sink
        if sink.can_withdraw:
            if taken := _taken_away(folders, newer, output):
                LOG.warning(
                    "going back to checkpoint %d: %d files that were published since then are not "
                    "there any more, and their rows come again. The first was %s",
                    checkpoint,
                    len(taken),
                    taken[0],
                )
            with named(sink_name(sink), "withdraw", checkpoint, telling=(OSError,)):
                called(sink.withdraw, checkpoint)
    if newer:
        # Newer checkpoints, deleted below, show that its output was published.
        note_published(folders, checkpoint, staged_by_output(metadata))
    for id in newer:
        folders.drop(id)
    folders.rewind.unlink()
    folders.root.sync()


def delivered_again(folders: CheckpointFolders, checkpoint: int, output: str) -> str:
    """Return a text of rows that a function receives again after a checkpoint; empty if none.

    `output` is the side output of the function; empty for the main one.
    """
    if not folders.output(output).is_dir():
        return ""
    delivered = last_delivered(folders.output(output))
    later = [id for id in folders.ids() if id > checkpoint and _has_rows(folders, id, output)]
    had = [id for id in later if id <= delivered]
    parts = []
    if had:
        parts.append(f"has had the rows of {_named(had)}")
    elif delivered > checkpoint:
        # The metadata of these checkpoints may be deleted by now.
        parts.append(f"has had rows of checkpoints up to {delivered}")
    if perhaps := [id for id in later if id > delivered]:
        # The process may have died between the call and the note.
        parts.append(f"may have had those of {_named(perhaps)}")
    if not parts:
        return ""
    known = ", and ".join(parts)
    of = f" of side output {output!r}" if output else ""
    return f"the function of foreach_batch{of} {known}; these rows come again, under new ids"


def _named(ids: Sequence[int]) -> str:
    return f"checkpoint{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _has_rows(folders: CheckpointFolders, id: int, output: str) -> bool:
    """Return whether a function was called for a checkpoint; True if it cannot be read."""
    try:
        regions = folders.read(id).regions.values()
    except (*UNREADABLE, NewerFormatError):
        return True
    return any(one.output == output for entry in regions for one in entry.staged)


def _taken_away(
    folders: CheckpointFolders, given_up: Sequence[int], output: OutputPlan
) -> list[str]:
    """Return the files of checkpoints that a sink published and that are gone."""
    sink = output.sink
    if not isinstance(sink, ParquetSink) or sink.root == folders.output(output.name):
        return []  # A function received its files, and has its own warning.
    found: list[str] = []
    for id in given_up:
        with suppress(*UNREADABLE, NewerFormatError):
            metadata = folders.read(id)
            staged = staged_by_output(metadata).get(output.name, [])
            if staged and is_published(folders, metadata, output.name, staged):
                found += sink.unpublished(staged)
    return found
