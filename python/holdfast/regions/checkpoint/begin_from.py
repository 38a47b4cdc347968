"""Beginning a pipeline from a savepoint, or from a checkpoint of another folder (R72)."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from holdfast._checks import optional_int, require_one_of
from holdfast._core import CheckpointMetadata
from holdfast.files.paths import AnyPath, any_folder
from holdfast.regions.base.callbacks import called
from holdfast.regions.checkpoint.claim import delete_claimed
from holdfast.regions.checkpoint.copy import Adapt, copy_region, require_free, write_image
from holdfast.regions.checkpoint.declared import RunCompare, changed_regions
from holdfast.regions.checkpoint.go_back import delivered_again
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout
from holdfast.regions.checkpoint.ownership import (
    discard_unstarted,
    new_identity,
    newest_properties,
    successor,
)
from holdfast.regions.checkpoint.read import choose
from holdfast.regions.checkpoint.rescale import Rescaling, require_coordinators
from holdfast.regions.checkpoint.settled_outputs import require_settled
from holdfast.regions.checkpoint.verify import require_intact
from holdfast.regions.files.folders import (
    IDENTITY_PROPERTY,
    RESTORE_MODE_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_CREATED_PROPERTY,
    RESTORED_FROM_PROPERTY,
    RESTORED_IDENTITY_PROPERTY,
    CheckpointFolders,
    output_property,
)
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks import CheckpointId, TwoPhaseSink
from holdfast.regions.sinks.destination import Output
from holdfast.regions.sinks.owner import OutputOwner
from holdfast.regions.sinks.published import is_published, staged_by_output
from holdfast.regions.sinks.publisher import named
from holdfast.regions.sinks.sink import sink_name

LOG: Final = logging.getLogger(__name__)

Mode = Literal["claim", "no_claim"]


@dataclass(frozen=True)
class Restore:
    """The beginning of a pipeline, made by `restore`.

    `path` is a savepoint, or another pipeline's checkpoint folder, which the mode ``claim`` deletes
    once it is not needed. `checkpoint_id` is one of its checkpoints; None: the latest.
    """

    path: AnyPath
    mode: Mode
    checkpoint_id: int | None


def restore(
    path: str | os.PathLike[str], *, mode: Mode = "no_claim", checkpoint_id: int | None = None
) -> Restore:
    """Return where a pipeline begins, for ``start(restore=...)``.

    The checkpoint, with all that it needs and Spark's position in the stream, is copied into the
    new checkpoint folder before the first batch. So the new pipeline never refers to the old
    folder. With ``no_claim`` you may delete the old folder as soon as the pipeline has started.
    With ``claim`` the pipeline deletes it. A savepoint may be restored any number of times.

    The pipeline may have another name. Its operators are found by their names. Their parallelism
    and `route_by` may differ if they have no array and value state. Lists are divided, the entries
    of maps and tables follow the rows of their keys, all instances receive union and broadcast
    state, and rows that wait between operators go to the instances of the new routes. Operators
    may be added, but not where rows wait.

    The new pipeline may write to the output folder of the old one. It then owns the folder, and
    the old pipeline is refused there. A later start with the same `path` continues from the new
    folder's own latest checkpoint.

    Parameters
    ----------
    path : str or path-like
        A savepoint, or the checkpoint folder of a pipeline that no longer runs: a `Path` that is
        mounted, or as a string the URI of a folder on a file system that Spark reaches, or a path
        of Spark's default one.
    mode : {"no_claim", "claim"}, default "no_claim"
        With ``claim``, the new pipeline owns the old folder and deletes all of its checkpoints as
        soon as it has its own first one. Files that no pipeline made remain. The folder of a
        running pipeline is refused.
    checkpoint_id : int, optional
        A retained checkpoint; by default the latest.

    Raises
    ------
    ValueError
        If there is no such mode.

    Examples
    --------
    >>> query.stop_with_savepoint("savepoints/monday")
    >>> query = writer.start(checkpoint="ckpt-2", restore=holdfast.restore("savepoints/monday"))
    """
    require_one_of("mode", mode, get_args(Mode))
    chosen = optional_int("checkpoint_id", checkpoint_id, at_least=0)
    return Restore(any_folder(path), mode, chosen)


def begin_from(
    origin: Restore,
    plan: PipelinePlan,
    outputs: Sequence[Output],
    folders: CheckpointFolders,
    *,
    max_file_bytes: int,
    compare: RunCompare,
) -> None:
    """Create a pipeline's checkpoint folder from another one.

    `folders` is new, or begun from `origin` before. Raises the errors of `RegionalWriter.start` for
    folders and checkpoints, and a ValueError if one folder lies in the other. See `own_folders` and
    `PipelineDriver.start` for the other parameters.
    """
    _require_apart(origin.path, folders.root)
    if _begun_before(origin, folders):
        return
    discard_unstarted(folders.root)
    require_free(folders.root)
    source = CheckpointFolders(origin.path)
    metadata = _chosen(origin, source)
    old, new = Layout.recorded(metadata), Layout.of(plan)
    require_coordinators(metadata, plan)
    adapt: Adapt = copy_region
    if old is not None:
        drop = plan.options.drop_undeclared_state
        adapt = Rescaling(old, new, metadata.regions, drop=drop)
        changed_regions(source, metadata, plan, old=old, run=compare)
    owner = OutputOwner(new_identity(), plan.pipeline, str(folders.root))
    for output in outputs:
        if output.ownership is not None:
            output.ownership.require_free_for(successor(metadata, output, owner))
    require_settled(metadata, source, plan)
    for output in outputs:
        _publish_pending(output, source, metadata)
        _require_no_later_output(output.sink, metadata)
    write_image(
        source,
        metadata,
        folders.root,
        kind="checkpoint",
        pipeline=plan.pipeline,
        properties={
            LAYOUT_PROPERTY: new.to_json(),
            **{output_property(output.name): output.sink.location for output in outputs},
            IDENTITY_PROPERTY: owner.id,
            RESTORED_FROM_PROPERTY: str(origin.path),
            RESTORED_IDENTITY_PROPERTY: metadata.properties.get(IDENTITY_PROPERTY, ""),
            RESTORED_CHECKPOINT_PROPERTY: str(metadata.id),
            RESTORED_CREATED_PROPERTY: str(metadata.created_ms),
            RESTORE_MODE_PROPERTY: origin.mode,
        },
        max_file_bytes=max_file_bytes,
        adapt=adapt,
    )
    LOG.info("began with checkpoint %d of %s", metadata.id, origin.path)
    for output in outputs:
        again = delivered_again(source, metadata.id, output.name)
        if again and output.sink.location == str(folders.output(output.name)):
            LOG.warning("beginning with checkpoint %d of %s: %s", metadata.id, origin.path, again)


def finish_claim(origin: Restore, folders: CheckpointFolders) -> None:
    """Delete the folder that a pipeline began from, if it was claimed; it is locked."""
    # A damaged checkpoint is reported when it is restored.
    if origin.mode == "claim" and (began := newest_properties(folders, OSError)) is not None:
        try:
            delete_claimed(origin.path, began)
        except OSError as error:
            LOG.warning(
                "the claimed folder %s is not deleted yet, and the next start with the same "
                "restore= tries again: %s",
                origin.path,
                error,
            )


def _require_apart(one: AnyPath, other: AnyPath) -> None:
    if one.lies_in(other) or other.lies_in(one):
        raise ValueError(
            f"a pipeline cannot begin in {other} from {one}: expected two folders of which none "
            "lies in the other; to go back in a pipeline's own folder, give checkpoint_id="
        )


def _begun_before(origin: Restore, folders: CheckpointFolders) -> bool:
    """Return whether the folder has checkpoints of a pipeline that began from there."""
    found = newest_properties(folders, OSError)
    if found is None:
        return False
    asked = found.get(RESTORED_CHECKPOINT_PROPERTY, "")
    if found.get(RESTORED_FROM_PROPERTY) == str(origin.path) and (
        origin.checkpoint_id is None or asked == str(origin.checkpoint_id)
    ):
        return True
    raise FileExistsError(
        errno.EEXIST,
        f"it holds checkpoints that do not go back to {origin.path}; begin in a new folder, or "
        "leave restore= out to go on from these",
        str(folders.root),
    )


def _chosen(origin: Restore, folders: CheckpointFolders) -> CheckpointMetadata:
    """Return the checkpoint to restore, after everything that it needs was read."""
    if not folders.metadata.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            "expected a savepoint or the checkpoint folder of a pipeline",
            str(origin.path),
        )
    if folders.rewind.exists():
        raise FileExistsError(
            errno.EEXIST,
            "its pipeline was going back to an older checkpoint when it ended; start that "
            "pipeline once more, so that it gets there",
            str(folders.rewind),
        )
    ids = folders.ids()
    chosen = choose(ids, origin.checkpoint_id, origin.path)
    require_intact(origin.path, chosen, [id for id in ids if id < chosen], restored=True)
    return folders.read(chosen)


def _publish_pending(output: Output, old: CheckpointFolders, metadata: CheckpointMetadata) -> None:
    """Publish the staged output of the checkpoint, unless the old pipeline did (R81).

    Publishes only in the folder of the new pipeline. Metadata, which may come from anywhere (R92),
    names the old folder, so that is only read. Output for a function goes to the new function.
    """
    staged = staged_by_output(metadata).get(output.name, [])
    sink, given = output.sink, old.output(output.name)
    if given.exists():
        output.publisher.take_over(given, CheckpointId.of(metadata), staged)
        return
    if not staged or is_published(old, metadata, output.name, staged):
        return
    try:
        with named(sink_name(sink), "recover", metadata.id, telling=(OSError, ValueError)):
            called(sink.recover, CheckpointId.of(metadata), staged)
    except FileNotFoundError:
        location = metadata.properties.get(output_property(output.name), sink.location)
        if location == sink.location:
            raise
        elsewhere = sink.at(location) if _is_known(location, sink, old) else None
        if elsewhere is None:
            raise ValueError(
                f"the old pipeline wrote to {location}, where the new one does not look: whether "
                f"all of checkpoint {metadata.id} is published is not known. Start the old "
                "pipeline once more and stop it, or let the new one write into the same folder"
            ) from None
        if waiting := elsewhere.unpublished(staged):
            files = "1 file" if len(waiting) == 1 else f"{len(waiting)} files"
            raise ValueError(
                f"the old pipeline has not published {files} of checkpoint "
                f"{metadata.id} yet, the first as {waiting[0]}, and the new one writes elsewhere: "
                "start the old pipeline once more and stop it, or let the new one write into the "
                "same folder"
            ) from None


def _is_known(location: str, sink: TwoPhaseSink, old: CheckpointFolders) -> bool:
    """Return whether a place is mounted, or on a server that the user has named, too.

    Metadata may come from anywhere: connect to no server that only metadata names (R92).
    """
    server = urlsplit(location)[:2]
    named = (sink.location, str(old.root))
    return location.startswith("/") or server in [urlsplit(other)[:2] for other in named]


def _require_no_later_output(sink: TwoPhaseSink, metadata: CheckpointMetadata) -> None:
    """Check that the output has no rows since the checkpoint, which will be written again."""
    later = sink.published_after(metadata.id)
    if later and not sink.can_withdraw:
        LOG.warning(
            "rows since checkpoint %d come again: they were committed as %s, and cannot be taken "
            "back",
            metadata.id,
            ", ".join(later[:3]),
        )
    elif later:
        raise FileExistsError(
            errno.EEXIST,
            f"the output folder holds {len(later)} files of checkpoints after {metadata.id}, whose "
            "rows would be written again; write into another folder, or remove these files first, "
            "such as",
            later[0],
        )
