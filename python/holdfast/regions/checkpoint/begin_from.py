"""Beginning a pipeline from a savepoint, or from a checkpoint of another folder (R72)."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.folders import (
    IDENTITY_PROPERTY,
    OUTPUT_PROPERTY,
    RESTORE_MODE_PROPERTY,
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_CREATED_PROPERTY,
    RESTORED_FROM_PROPERTY,
    RESTORED_IDENTITY_PROPERTY,
    CheckpointFolders,
)
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.metadata_files import list_metadata
from holdfast.regions.base.paths import AnyPath, any_folder
from holdfast.regions.checkpoint.claim import delete_claimed
from holdfast.regions.checkpoint.copy import copy_region, require_free, write_image
from holdfast.regions.checkpoint.delivered_again import delivered_again
from holdfast.regions.checkpoint.layout import LAYOUT_PROPERTY, Layout
from holdfast.regions.checkpoint.ownership import discard_unstarted, new_identity, successor
from holdfast.regions.checkpoint.read import choose, read_metadata
from holdfast.regions.checkpoint.rescale import Rescaling
from holdfast.regions.checkpoint.verify import require_intact
from holdfast.regions.protocol.orders import PipelinePlan
from holdfast.regions.sinks import CheckpointId, Publisher, TwoPhaseSink
from holdfast.regions.sinks.owner import Ownership
from holdfast.regions.sinks.publisher import named

LOG: Final = logging.getLogger(__name__)

Mode = Literal["claim", "no_claim"]


@dataclass(frozen=True)
class Restore:
    """Where a pipeline begins; made by `restore`.

    Parameters
    ----------
    path : Path or HadoopPath
        A savepoint, or the checkpoint folder of another pipeline.
    mode : {"claim", "no_claim"}
        Whether that folder is deleted once it is not needed.
    checkpoint_id : int or None
        Which of its checkpoints; None: the latest.
    """

    path: AnyPath
    mode: Mode
    checkpoint_id: int | None


def restore(
    path: str | os.PathLike[str], *, mode: Mode = "no_claim", checkpoint_id: int | None = None
) -> Restore:
    """Say where a pipeline begins: give the result to ``start(restore=...)``.

    All that the checkpoint needs is copied into the new checkpoint folder before the first batch,
    together with Spark's position in the stream. So the new pipeline never refers to the old
    folder: with ``no_claim`` it may be deleted as soon as the pipeline has started, with ``claim``
    it is. A savepoint may be restored any number of times.

    The pipeline may have another name. Its operators are found by their names; their parallelism
    and `route_by` may differ where they have no array and value state: lists are divided, the
    entries of maps follow the rows of their keys, union and broadcast state goes to all instances,
    and rows that wait between operators go to the instances that the routes say now. Operators may
    be added, but not where rows wait.

    Where the old pipeline wrote its output, the new one may go on writing: the folder is its own
    from then on, and the old pipeline is refused there.

    Starting again with the same `path` goes on from the new folder's own latest checkpoint.

    Parameters
    ----------
    path : str or path-like
        A savepoint, or the checkpoint folder of a pipeline that does not run any more: a `Path`
        that is mounted, or as a string the URI of a folder on a file system that Spark reaches, or
        a path of Spark's default one.
    mode : {"no_claim", "claim"}, default "no_claim"
        With ``claim``, the new pipeline owns the old folder and deletes its checkpoints, all of
        them, as soon as it has its own first one. Files that no pipeline made stay. The folder of
        a pipeline that runs is refused.
    checkpoint_id : int, optional
        A retained checkpoint; by default the latest.

    Returns
    -------
    Restore

    Raises
    ------
    ValueError
        If there is no such mode.

    Examples
    --------
    >>> query.stop_with_savepoint("savepoints/monday")
    >>> query = writer.start(checkpoint="ckpt-2", restore=holdfast.restore("savepoints/monday"))
    """
    if mode not in get_args(Mode):
        raise ValueError(
            f"mode={mode!r} is not allowed: expected one of {', '.join(get_args(Mode))}"
        )
    return Restore(any_folder(path), mode, checkpoint_id)


def begin_from(
    origin: Restore,
    plan: PipelinePlan,
    publisher: Publisher,
    folders: CheckpointFolders,
    output: Ownership | None,
    *,
    max_file_bytes: int,
) -> None:
    """Create a pipeline's checkpoint folder from another one.

    Parameters
    ----------
    origin : Restore
        What to begin from.
    plan : PipelinePlan
        The pipeline.
    publisher : Publisher
        The driver's half of its sink.
    folders : CheckpointFolders
        Its checkpoint folder: new, or begun from `origin` before.
    output : Ownership or None
        Where it writes; None if that is not outside of its checkpoint folder.
    max_file_bytes : int
        Size in bytes at which a merged file is sealed.

    Raises
    ------
    FileExistsError
        If the folder is in use for something else, or the output folder belongs to another
        pipeline than that of `origin`, or holds output of checkpoints that are not restored.
    FolderInUseError
        If a pipeline runs that writes into the output folder.
    FileNotFoundError
        If there is no such checkpoint.
    DamagedCheckpointError
        If it, or something that it needs, is damaged.
    LayoutChangedError
        If the pipeline cannot continue its state.
    ValueError
        If one folder lies in the other.
    """
    _require_apart(origin.path, folders.root)
    if not _begun_before(origin, folders):
        discard_unstarted(folders.root)
        require_free(folders.root)
        metadata = _chosen(origin)
        identity = new_identity()
        if output is not None:
            output.require_free_for(successor(metadata, folders, plan, identity))
        _publish_pending(plan.sink, publisher, CheckpointFolders(origin.path), metadata)
        _require_no_later_output(plan.sink, metadata)
        old, new = Layout.recorded(metadata), Layout.of(plan)
        write_image(
            CheckpointFolders(origin.path),
            metadata,
            folders.root,
            kind="checkpoint",
            pipeline=plan.pipeline,
            properties={
                LAYOUT_PROPERTY: new.to_json(),
                OUTPUT_PROPERTY: plan.sink.location,
                IDENTITY_PROPERTY: identity,
                RESTORED_FROM_PROPERTY: str(origin.path),
                RESTORED_IDENTITY_PROPERTY: metadata.properties.get(IDENTITY_PROPERTY, ""),
                RESTORED_CHECKPOINT_PROPERTY: str(metadata.id),
                RESTORED_CREATED_PROPERTY: str(metadata.created_ms),
                RESTORE_MODE_PROPERTY: origin.mode,
            },
            max_file_bytes=max_file_bytes,
            adapt=copy_region if old is None else Rescaling(old, new, metadata.regions),
        )
        LOG.info("began with checkpoint %d of %s", metadata.id, origin.path)
        again = delivered_again(CheckpointFolders(origin.path), metadata.id)
        if again and plan.sink.location == str(folders.output):
            LOG.warning("beginning with checkpoint %d of %s: %s", metadata.id, origin.path, again)


def finish_claim(origin: Restore, folders: CheckpointFolders) -> None:
    """Delete the folder that a pipeline began from, if it was claimed; it is locked.

    Parameters
    ----------
    origin : Restore
        What the pipeline began from.
    folders : CheckpointFolders
        Its own checkpoint folder.
    """
    began = _first_of(folders)
    if origin.mode == "claim" and began is not None:
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
    if isinstance(one, HadoopPath) != isinstance(other, HadoopPath):
        return
    if one.is_relative_to(other) or other.is_relative_to(one):  # type: ignore[arg-type]
        raise ValueError(
            f"a pipeline cannot begin in {other} from {one}: expected two folders of which none "
            "lies in the other; to go back in a pipeline's own folder, give checkpoint_id="
        )


def _begun_before(origin: Restore, folders: CheckpointFolders) -> bool:
    """Whether the folder holds checkpoints of a pipeline that began from there."""
    found = _first_of(folders)
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


def _first_of(folders: CheckpointFolders) -> dict[str, str] | None:
    """Return what the checkpoints of a folder say about where they began; None if there are none.

    A damaged one is reported when it is restored.
    """
    with suppress(FileNotFoundError):
        for id in reversed(list_metadata(folders.metadata)):
            with suppress(OSError):
                return read_metadata(folders.root, id).properties
    return None


def _chosen(origin: Restore) -> CheckpointMetadata:
    """Return the checkpoint to restore, after all that it needs was read once."""
    folders = CheckpointFolders(origin.path)
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
    ids = list_metadata(folders.metadata)
    chosen = choose(ids, origin.checkpoint_id, origin.path)
    require_intact(origin.path, chosen, [id for id in ids if id < chosen])
    return read_metadata(origin.path, chosen)


def _publish_pending(
    sink: TwoPhaseSink, publisher: Publisher, old: CheckpointFolders, metadata: CheckpointMetadata
) -> None:
    """Publish what the old pipeline staged for the checkpoint, if it did not get to it (R81).

    Only in the folder that the new pipeline writes to: where the old one wrote is what metadata
    says, which may come from anywhere (R92), so that is looked at and left as it is. If the output
    went to a function, the one of the new pipeline is called.
    """
    staged = [one for entry in metadata.regions.values() for one in entry.staged]
    if old.output.exists():
        publisher.take_over(old.output, CheckpointId.of(metadata), staged)
        return
    if not staged:
        return
    try:
        with named(sink, "recover", metadata.id, telling=(OSError, ValueError)):
            sink.recover(CheckpointId.of(metadata), staged)
    except FileNotFoundError:
        location = metadata.properties.get(OUTPUT_PROPERTY, sink.location)
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
            raise ValueError(
                f"the old pipeline has not published {len(waiting)} files of checkpoint "
                f"{metadata.id} yet, the first as {waiting[0]}, and the new one writes elsewhere: "
                "start the old pipeline once more and stop it, or let the new one write into the "
                "same folder"
            ) from None


def _is_known(location: str, sink: TwoPhaseSink, old: CheckpointFolders) -> bool:
    """Whether a place is mounted, or on a server that the user has named, too.

    A name of a server in metadata, which may come from anywhere, is not connected to (R92).
    """
    server = urlsplit(location)[:2]
    named = (sink.location, str(old.root))
    return location.startswith("/") or server in [urlsplit(other)[:2] for other in named]


def _require_no_later_output(sink: TwoPhaseSink, metadata: CheckpointMetadata) -> None:
    """Rows since the checkpoint come again: output that has them already would have them twice."""
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
