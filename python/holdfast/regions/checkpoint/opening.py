"""Chooses the checkpoints of its own folder that a pipeline continues from."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast._core import CheckpointMetadata
from holdfast.files.verdicts import UNREADABLE
from holdfast.regions.checkpoint.declared import RunCompare, changed_regions
from holdfast.regions.checkpoint.go_back import begin_rewind, finish_rewind
from holdfast.regions.checkpoint.layout import Layout
from holdfast.regions.checkpoint.read import choose
from holdfast.regions.checkpoint.rescale import require_coordinators, require_in_place
from holdfast.regions.checkpoint.settled_outputs import (
    published_outputs,
    require_settled,
    say_what_stays,
)
from holdfast.regions.checkpoint.stream_log import require_planned
from holdfast.regions.checkpoint.verify import require_intact
from holdfast.regions.files.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks.published import note_published

LOG: Final = logging.getLogger(__name__)


def open_folder(
    folders: CheckpointFolders,
    plan: PipelinePlan,
    *,
    checkpoint_id: int | None,
    verify: bool,
    compare: RunCompare,
) -> tuple[list[CheckpointMetadata], frozenset[str]]:
    """Make a checkpoint folder ready to continue from; created if it is not there.

    See `PipelineDriver.start` for the parameters. Returns the retained checkpoints, ascending, up
    to the one to continue from (none at the first start), and its regions with a state to convert
    or drop (R78).
    """
    folders.metadata.make_folder(exist_ok=True)
    finish_rewind(folders, plan.outputs)
    ids = folders.ids()
    if checkpoint_id is None and not ids:
        return [], frozenset()
    chosen = choose(ids, checkpoint_id, folders.root)
    older = [id for id in ids if id < chosen]
    if verify:
        require_intact(folders.root, chosen, older)
    metadata = folders.read(chosen)
    changed = _require_same_pipeline(metadata, folders, plan, compare)
    require_settled(metadata, folders, plan)
    published = published_outputs(metadata, folders, plan)
    if checkpoint_id is not None:
        # Even for the newest checkpoint: batches planned after it are planned again.
        require_planned(folders.stream, metadata.batch_id)
        begin_rewind(folders, chosen)
        finish_rewind(folders, plan.outputs)
    note_published(folders, metadata.id, published)
    say_what_stays(metadata, plan)
    retained = [*_complete(folders, older, like=metadata), metadata]
    if len(retained) == len(older) + 1:
        # Drivers that died, and abandoned checkpoints, may have left some.
        try:
            left = folders.bases(up_to=metadata.id)
            folders.drop_bases(left - {one.base_file for one in retained})
        except OSError as error:
            LOG.warning("regions that no checkpoint names stay in %s: %s", folders.metadata, error)
    return retained, changed


def _require_same_pipeline(
    metadata: CheckpointMetadata,
    folders: CheckpointFolders,
    plan: PipelinePlan,
    compare: RunCompare,
) -> frozenset[str]:
    """Return the regions with a state to convert or drop."""
    name = metadata.properties.get(PIPELINE_PROPERTY, plan.pipeline)
    if name != plan.pipeline:
        raise ValueError(
            f"{folders.root} holds checkpoints of pipeline {name!r}, not of {plan.pipeline!r}: "
            f"start with name={name!r}, or restore them in a new folder by "
            "restore=holdfast.restore(...)"
        )
    layout = Layout.recorded(metadata)
    require_coordinators(metadata, plan)
    if layout is None:
        return frozenset()
    require_in_place(metadata, layout, Layout.of(plan), drop=plan.options.drop_undeclared_state)
    return changed_regions(folders, metadata, plan, old=layout, run=compare)


def _complete(
    folders: CheckpointFolders, ids: Sequence[int], *, like: CheckpointMetadata
) -> list[CheckpointMetadata]:
    """Return undamaged older checkpoints. Damage stops nothing: the latest one is complete."""
    complete = []
    for id in ids:
        try:
            metadata = folders.read(id, like=like)
            try:
                _look(folders, metadata.file_bytes(at_most=True))
            except FileNotFoundError:
                # No checkpoint may need the file any more.
                _look(folders, metadata.file_bytes())
        except UNREADABLE as error:
            LOG.warning("checkpoint %d is damaged and left alone; delete it: %s", id, error)
        else:
            complete.append(metadata)
    return complete


def _look(folders: CheckpointFolders, files: Iterable[str]) -> None:
    for file in files:
        (folders.segments / file).status()
