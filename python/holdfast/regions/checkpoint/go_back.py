"""Going back to an older checkpoint in a pipeline's own folder.

Three things have moved on since: newer checkpoints, the output they published, and Spark's record
of the stream. All three go back, or rows would be lost or doubled. What is to be done is written
down first, so that a crash at any moment leaves a folder in which the next start finishes it.
"""

from __future__ import annotations

import logging
from typing import Final

from holdfast.regions.base.durable import sync_folder, write_number
from holdfast.regions.base.folders import CheckpointFolders
from holdfast.regions.base.metadata_files import delete_metadata, list_metadata
from holdfast.regions.checkpoint.delivered_again import delivered_again
from holdfast.regions.checkpoint.read import read_metadata
from holdfast.regions.checkpoint.stream_log import rewind_stream
from holdfast.regions.sinks import TwoPhaseSink
from holdfast.regions.sinks.publisher import named

LOG: Final = logging.getLogger(__name__)


def begin_rewind(folders: CheckpointFolders, checkpoint: int) -> None:
    """Decide for good that the pipeline goes back. To be followed by `finish_rewind`.

    Parameters
    ----------
    folders : CheckpointFolders
        The pipeline's folder.
    checkpoint : int
        A retained checkpoint that is intact.
    """
    write_number(folders.rewind, checkpoint)


def finish_rewind(folders: CheckpointFolders, sink: TwoPhaseSink) -> None:
    """Go back as far as it was decided; nothing if it was not.

    Parameters
    ----------
    folders : CheckpointFolders
        The pipeline's folder.
    sink : TwoPhaseSink
        Where newer checkpoints published output.

    Raises
    ------
    OSError
        If storage refuses. The next start tries again.
    """
    try:
        checkpoint = int(folders.rewind.read_text())
    except FileNotFoundError:
        return
    newer = [id for id in list_metadata(folders.metadata) if id > checkpoint]
    LOG.warning("going back to checkpoint %d: checkpoints %s are given up", checkpoint, newer)
    if again := delivered_again(folders, checkpoint):
        LOG.warning("going back to checkpoint %d: %s", checkpoint, again)
    metadata = read_metadata(folders.root, checkpoint)
    rewind_stream(folders.stream, metadata.batch_id)
    if sink.can_withdraw:
        with named(sink, "withdraw", checkpoint, telling=(OSError,)):
            sink.withdraw(checkpoint)
    for id in newer:
        delete_metadata(folders.metadata, id)
    folders.rewind.unlink()
    sync_folder(folders.root)
