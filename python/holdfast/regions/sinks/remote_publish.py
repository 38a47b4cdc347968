"""Publish staged files on a file system that only the JVM reaches; see `sinks.publish`.

Where files can be renamed, a staged file is renamed. On an object store it is an upload of which
no reader sees anything until it is completed, and what has the staged name says which one it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress

from holdfast._core import Staged
from holdfast.regions.base.durable import explained
from holdfast.regions.base.hadoop_path import HadoopPath, Status
from holdfast.regions.sinks.layout import (
    STAGED_FOLDER,
    attempt_of,
    own_files,
    own_target,
)


def publish(root: HadoopPath, staged: Iterable[Staged], suffix: str) -> None:
    """Make staged files visible under their final names, as `sinks.publish.publish`."""
    files = own_files(root, staged, suffix)
    if files:
        root.publish(files)
        for folder in sorted({source.parent for source, _, _ in files}):
            # The sweep that follows removes what stays, or says why it cannot.
            with suppress(OSError):
                _remove_if_empty(folder)


def unpublished(root: HadoopPath, staged: Iterable[Staged], suffix: str) -> list[HadoopPath]:
    """Return the final names of staged files that no file has yet, and change nothing."""
    with explained(f"cannot look for published files in {root}"):
        found = {path: status for path, status in _entries(root) if not status.is_folder}
        return [
            target
            for _, target, size in own_files(root, staged, suffix)
            if target not in found or found[target].st_size != size
        ]


def sweep(root: HadoopPath, before_attempt: int) -> None:
    """Throw away what earlier attempts staged, and nothing that no pipeline staged."""
    staged = root / STAGED_FOLDER
    with explained(f"cannot remove staged files of attempts before {before_attempt} in {staged}"):
        for folder, _ in _entries(staged):
            attempt = attempt_of(folder.name)
            if attempt is None or attempt >= before_attempt:
                continue
            names = (path.name for path, _ in _entries(folder))
            own = [
                folder / name
                for name in names
                if own_target(f"{STAGED_FOLDER}/{folder.name}/{name}", "") is not None
            ]
            if own:
                root.discard(own)
            _remove_if_empty(folder)


def _entries(folder: HadoopPath) -> Sequence[tuple[HadoopPath, Status]]:
    try:
        return folder.entries()
    except FileNotFoundError:
        return ()


def _remove_if_empty(folder: HadoopPath) -> None:
    # Object stores have no folders: there it is gone with what was in it.
    if folder.renames:
        # Not empty: other regions of the attempt are still staged.
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
