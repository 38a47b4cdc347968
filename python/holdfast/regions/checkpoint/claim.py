"""Deletes the files that a pipeline made in a claimed folder, and nothing else (R72, R92)."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from holdfast.files.paths import AnyPath, listed
from holdfast.regions.checkpoint.history import PAGE_NAME
from holdfast.regions.files.folders import (
    RESTORED_CHECKPOINT_PROPERTY,
    RESTORED_CREATED_PROPERTY,
    CheckpointFolders,
)
from holdfast.regions.files.lock import lock_folder, remove_lock
from holdfast.regions.sinks.delivered import forget_delivered
from holdfast.regions.sinks.parquet import ParquetSink

LOG: Final = logging.getLogger(__name__)

#: Names in a folder of segments.
_SEGMENTS: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}\.hf", re.ASCII)

#: Paths in Spark's record: entries of logs with their checksums, half-written files, and the state
#: of Spark's own operators, in folders by their number.
_STREAM: Final = re.compile(
    r"\.?metadata(\.crc)?|(offsets|commits|sources/[^/]+)/\.?\d+(\.compact)?(\.crc)?"
    r"|(.*/)?\.[^/]*\.tmp(\.crc)?|state/\d+/.*",
    re.ASCII,
)


@contextmanager
def held(claimed: AnyPath) -> Iterator[None]:
    """Lock a folder that is being claimed; does nothing if it is gone.

    Refuses a folder with a symbolic link: files that a link leads to do not belong to it.
    """
    folders = CheckpointFolders(claimed)
    with ExitStack() as locked:
        if folders.metadata.is_dir():
            parts = (folders.metadata, folders.segments, folders.stream, folders.history)
            for part in (*parts, *folders.outputs()):
                if part.is_symlink():
                    raise OSError(
                        errno.ELOOP, "a folder with symbolic links cannot be claimed", str(part)
                    )
            locked.enter_context(lock_folder(folders.lock))
        yield


def delete_claimed(claimed: AnyPath, began: dict[str, str]) -> None:
    """Delete the checkpoints of a claimed, locked folder, if they were not replaced since.

    Metadata is deleted last: while it is there, an interrupted deletion is repeated. `began` has
    the properties of the pipeline that claimed it.
    """
    folders = CheckpointFolders(claimed)
    id = int(began.get(RESTORED_CHECKPOINT_PROPERTY, "0"))
    try:
        created_ms = folders.read(id).created_ms
    except FileNotFoundError:
        return
    if str(created_ms) != began.get(RESTORED_CREATED_PROPERTY):
        LOG.warning("%s is not deleted: it is not what was claimed any more", claimed)
        return
    for folder, own in (
        (folders.stream, _STREAM),
        (folders.segments, _SEGMENTS),
        (folders.history, PAGE_NAME),
    ):
        if folder.is_dir():
            _delete_own(folder, "", own)
    for output in folders.outputs():
        if output.is_dir():
            _delete_output(output)
    for file in (folders.last_attempt, folders.identity, folders.skipped, folders.published):
        file.unlink(missing_ok=True)
        (claimed / f"{file.name}.new").unlink(missing_ok=True)
    for other in folders.ids():
        if other != id:
            folders.drop(other)
    folders.drop(id)
    folders.drop_bases(folders.bases())
    remove_lock(folders.lock)
    with suppress(OSError):
        folders.metadata.rmdir()
    try:
        claimed.rmdir()
    except OSError:
        left = sorted(path.name for path in claimed.iterdir())
        LOG.warning("the claimed folder %s stays with what no pipeline made: %s", claimed, left)
    else:
        LOG.info("the claimed folder %s is deleted", claimed)


def _delete_own(folder: AnyPath, path: str, own: re.Pattern[str]) -> None:
    """Delete the files below a folder whose paths match, and folders that become empty."""
    for entry in listed(folder):
        if entry.is_dir() and not entry.is_symlink():
            _delete_own(entry, f"{path}{entry.name}/", own)
        elif own.fullmatch(path + entry.name):
            entry.unlink(missing_ok=True)
    # A folder that is not empty has files of others.
    with suppress(OSError):
        folder.rmdir()


def _delete_output(folder: AnyPath) -> None:
    """Delete rows that a function has received."""
    sink = ParquetSink(folder)
    sink.sweep(1 << 64)  # of every attempt
    sink.withdraw(-1)
    forget_delivered(folder)
    for path in (folder / "_holdfast" / "staged", folder / "_holdfast", folder):
        with suppress(OSError):
            path.rmdir()
