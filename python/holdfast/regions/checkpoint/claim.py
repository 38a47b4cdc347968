"""Deleting a folder that was claimed: what a pipeline made there, and nothing else (R72, R92)."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from holdfast.regions.base.folder_lease import remove_leases
from holdfast.regions.base.folder_lock import lock_folder
from holdfast.regions.base.folders import (
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_CREATED_PROPERTY,
    CheckpointFolders,
)
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.metadata_files import delete_metadata, list_metadata
from holdfast.regions.base.paths import AnyPath, entries
from holdfast.regions.checkpoint.history_pages import PAGE_NAME
from holdfast.regions.checkpoint.read import read_metadata
from holdfast.regions.sinks.delivered import forget_delivered
from holdfast.regions.sinks.parquet import ParquetSink

LOG: Final = logging.getLogger(__name__)

#: Names in a folder of segments.
_SEGMENTS: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}\.hf", re.ASCII)

#: Paths in Spark's record: entries of logs with their checksums, what is half written, and the
#: state of Spark's own operators, in folders by their number.
_STREAM: Final = re.compile(
    r"\.?metadata(\.crc)?|(offsets|commits|sources/[^/]+)/\.?\d+(\.compact)?(\.crc)?"
    r"|(.*/)?\.[^/]*\.tmp(\.crc)?|state/\d+/.*",
    re.ASCII,
)


@contextmanager
def held(claimed: AnyPath) -> Iterator[None]:
    """Lock a folder that is being claimed; nothing if it is not there any more.

    Raises
    ------
    FolderInUseError
        If its pipeline runs.
    OSError
        If a part of it is a symbolic link: what that leads to is not the folder's.
    """
    folders = CheckpointFolders(claimed)
    with ExitStack() as locked:
        if folders.metadata.is_dir():
            parts = (folders.metadata, folders.segments, folders.stream, folders.output)
            for part in (*parts, folders.history):
                if part.is_symlink():
                    raise OSError(
                        errno.ELOOP, "a folder with symbolic links cannot be claimed", str(part)
                    )
            locked.enter_context(lock_folder(claimed, folders.lock))
        yield


def delete_claimed(claimed: AnyPath, began: dict[str, str]) -> None:
    """Delete the checkpoints of a claimed folder, if they still are those that were claimed.

    Metadata goes last: as long as it is there, a deletion that was interrupted is repeated.

    Parameters
    ----------
    claimed : Path or HadoopPath
        The folder, locked.
    began : dict of str to str
        Properties of the checkpoints of the pipeline that claimed it.
    """
    folders = CheckpointFolders(claimed)
    id = int(began.get(RESTORED_CHECKPOINT_PROPERTY, "0"))
    try:
        created_ms = read_metadata(claimed, id).created_ms
    except FileNotFoundError:
        return
    if str(created_ms) != began.get(RESTORED_CREATED_PROPERTY):
        LOG.warning("%s is not deleted: it is not what was claimed any more", claimed)
        return
    _delete_own(folders.stream, _STREAM)
    _delete_own(folders.segments, _SEGMENTS)
    _delete_own(folders.history, PAGE_NAME)
    if folders.output.is_dir():
        _delete_output(folders.output)
    for file in (folders.last_attempt, folders.identity):
        file.unlink(missing_ok=True)
        file.with_suffix(".new").unlink(missing_ok=True)
    for other in list_metadata(folders.metadata):
        if other != id:
            delete_metadata(folders.metadata, other)
    delete_metadata(folders.metadata, id)
    if isinstance(folders.lock, HadoopPath):
        remove_leases(folders.lock)
    else:
        folders.lock.unlink(missing_ok=True)
    with suppress(OSError):
        folders.metadata.rmdir()
    try:
        claimed.rmdir()
    except OSError:
        left = sorted(path.name for path in claimed.iterdir())
        LOG.warning("the claimed folder %s stays with what no pipeline made: %s", claimed, left)
    else:
        LOG.info("the claimed folder %s is deleted", claimed)


def _delete_own(folder: AnyPath, own: re.Pattern[str]) -> None:
    """Delete the files below a folder that have such paths, and the folders that are empty then."""
    if folder.is_dir():
        _delete_below(folder, "", own)


def _delete_below(folder: AnyPath, path: str, own: re.Pattern[str]) -> None:
    for entry in entries(folder):
        if entry.is_dir() and not entry.is_symlink():
            _delete_below(entry, f"{path}{entry.name}/", own)
        elif own.fullmatch(path + entry.name):
            entry.unlink(missing_ok=True)
    # What else is in there is not ours.
    with suppress(OSError):
        folder.rmdir()


def _delete_output(folder: AnyPath) -> None:
    """Delete rows on their way to a function, which has had them."""
    sink = ParquetSink(folder)
    sink.sweep(_EVERY_ATTEMPT)
    sink.withdraw(-1)
    forget_delivered(folder)
    for path in (folder / "_holdfast" / "staged", folder / "_holdfast", folder):
        with suppress(OSError):
            path.rmdir()


_EVERY_ATTEMPT: Final = 1 << 64
