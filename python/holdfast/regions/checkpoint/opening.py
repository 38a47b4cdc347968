"""Which checkpoints of its own folder a pipeline goes on from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.checkpoint.go_back import begin_rewind, finish_rewind
from holdfast.regions.checkpoint.layout import Layout
from holdfast.regions.checkpoint.read import UNREADABLE, choose, read_metadata
from holdfast.regions.checkpoint.rescale import require_in_place
from holdfast.regions.checkpoint.stream_log import require_planned
from holdfast.regions.checkpoint.verify import require_intact
from holdfast.regions.protocol.orders import PipelinePlan

LOG: Final = logging.getLogger(__name__)


def open_folder(
    folders: CheckpointFolders, plan: PipelinePlan, *, checkpoint_id: int | None, verify: bool
) -> list[CheckpointMetadata]:
    """Make a checkpoint folder ready to go on from.

    Parameters
    ----------
    folders : CheckpointFolders
        The pipeline's folder; created if it is not there.
    plan : PipelinePlan
        The pipeline.
    checkpoint_id : int or None
        Go back to this retained checkpoint: newer ones and their output are given up.
    verify : bool
        Read everything that the checkpoint needs, before anything is changed.

    Returns
    -------
    list of CheckpointMetadata
        The retained checkpoints, ascending, up to the one to go on from; empty at the first start.

    Raises
    ------
    DamagedCheckpointError
        If that one is damaged (R75).
    FileNotFoundError
        If there is no checkpoint `checkpoint_id`, or Spark's record does not reach back to it.
    ValueError
        If the checkpoint is that of a pipeline with another name or layout.
    """
    folders.metadata.mkdir(parents=True, exist_ok=True)
    finish_rewind(folders, plan.sink)
    ids = list_metadata(folders.metadata)
    if checkpoint_id is None and not ids:
        return []
    chosen = choose(ids, checkpoint_id, folders.root)
    older = [id for id in ids if id < chosen]
    if verify:
        require_intact(folders.root, chosen, older)
    metadata = read_metadata(folders.root, chosen)
    _require_same_pipeline(metadata, folders, plan)
    if checkpoint_id is not None:
        # Also to the newest: batches that were planned behind it are planned anew.
        require_planned(folders.stream, metadata.batch_id)
        begin_rewind(folders, chosen)
        finish_rewind(folders, plan.sink)
    return [*_complete(folders, plan, older), metadata]


def _require_same_pipeline(
    metadata: CheckpointMetadata, folders: CheckpointFolders, plan: PipelinePlan
) -> None:
    name = metadata.properties.get(PIPELINE_PROPERTY, plan.pipeline)
    if name != plan.pipeline:
        raise ValueError(
            f"{folders.root} holds checkpoints of pipeline {name!r}, not of {plan.pipeline!r}: "
            f"start with name={name!r}, or restore them in a new folder by "
            "restore=holdfast.restore(...)"
        )
    layout = Layout.recorded(metadata)
    if layout is not None:
        require_in_place(metadata, layout, Layout.of(plan))


def _complete(
    folders: CheckpointFolders, plan: PipelinePlan, ids: Sequence[int]
) -> list[CheckpointMetadata]:
    """Return older checkpoints, without those that cannot be gone back to.

    One that lacks a file must not keep the pipeline from going on from the latest, which has all.
    """
    complete = []
    for id in ids:
        try:
            metadata = read_metadata(folders.root, id)
            files = {ref.file for _, _, ref in metadata.segments(plan.pipeline)}
            for file in files:
                (folders.segments / file).stat()
        except UNREADABLE as error:
            LOG.warning("checkpoint %d is damaged and left alone; delete it: %s", id, error)
        else:
            complete.append(metadata)
    return complete
