"""Publish staged files, each by one atomic step, and sweep up what no attempt will publish.

A file is linked under its final name, the folder is made durable, and only then the staged name is
removed: whenever the machine stops, one of the names leads to the whole file. Linking does not
replace a file that is there. On file systems that only the JVM reaches, `sinks.remote_publish` does
the same.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast._core import Staged
from holdfast.regions.base.durable import explained, sync_folder
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath, entries
from holdfast.regions.sinks import remote_publish
from holdfast.regions.sinks.layout import (
    STAGED_FOLDER,
    attempt_of,
    own_files,
    own_target,
    published_attempt,
)

_CHUNK_BYTES: Final = 1 << 20
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def publish(root: AnyPath, staged: Iterable[Staged], suffix: str) -> None:
    """Make staged files visible under their final names; what is done already is left alone.

    Parameters
    ----------
    root : Path or HadoopPath
        Folder of the sink.
    staged : iterable of Staged
        Files of one or several checkpoints.
    suffix : str
        Of the names of published files.

    Raises
    ------
    FileNotFoundError
        If a file is neither staged nor published.
    FileExistsError
        If something else has the final name of a file.
    OSError
        If a staged file is damaged, a symbolic link takes the place of one or of its folder, or the
        file system refuses.
    ValueError
        If a path or a name is none that a stage of the sink makes.
    """
    if isinstance(root, HadoopPath):
        remote_publish.publish(root, staged, suffix)
        return
    files = own_files(root, staged, suffix)
    with explained(f"cannot publish staged files in {root}"):
        for folder in sorted({source.parent for source, _, _ in files}):
            _require_no_links(root, folder)
    for source, target, size in files:
        with explained(f"cannot publish the staged file {source} as {target}"):
            _expose(source, target, size)
    with explained(f"cannot make the published files in {root} durable"):
        for folder in sorted({target.parent for _, target, _ in files}):
            sync_folder(folder)
    # The sweep that follows removes what stays, or says why it cannot.
    for source, _, _ in files:
        with suppress(OSError):
            source.unlink(missing_ok=True)
    for folder in sorted({source.parent for source, _, _ in files}):
        with suppress(OSError):
            folder.rmdir()


def unpublished(root: AnyPath, staged: Iterable[Staged], suffix: str) -> Sequence[AnyPath]:
    """Return the final names of staged files that no file has yet. Changes nothing.

    Raises
    ------
    OSError
        If the file system refuses.
    ValueError
        If a path or a name is none that a stage of the sink makes.
    """
    if isinstance(root, HadoopPath):
        return remote_publish.unpublished(root, staged, suffix)
    with explained(f"cannot look for published files in {root}"):
        return [
            target
            for _, target, size in own_files(root, staged, suffix)
            if not os.path.lexists(target) or _size(target) != size
        ]


def sweep(root: AnyPath, before_attempt: int) -> None:
    """Remove the staged files of earlier attempts, and nothing that no pipeline staged.

    Parameters
    ----------
    root : Path or HadoopPath
        Folder of the sink.
    before_attempt : int
        The oldest attempt whose files stay.

    Raises
    ------
    OSError
        If the file system refuses.
    """
    if isinstance(root, HadoopPath):
        remote_publish.sweep(root, before_attempt)
        return
    folder = root / STAGED_FOLDER
    with explained(f"cannot remove staged files of attempts before {before_attempt} in {folder}"):
        if folder.parent.is_symlink() or folder.is_symlink():
            return
        for name in _names(folder):
            attempt = attempt_of(name)
            if attempt is None or attempt >= before_attempt or (folder / name).is_symlink():
                continue
            for file in _names(folder / name):
                if own_target(f"{STAGED_FOLDER}/{name}/{file}", "") is not None:
                    (folder / name / file).unlink(missing_ok=True)
            _remove_if_empty(folder / name)


def published_after(root: AnyPath, attempt: int, suffix: str) -> Sequence[AnyPath]:
    """Return the published files of later attempts, by name.

    Raises
    ------
    OSError
        If the file system refuses.
    """
    with explained(f"cannot look for published files in {root}"):
        return [
            path
            for path in _entries(root)
            if (found := published_attempt(path.name, suffix)) is not None and found > attempt
        ]


def withdraw(root: AnyPath, after_attempt: int, suffix: str) -> None:
    """Remove the published files of later attempts, durable on return; may be repeated.

    Raises
    ------
    OSError
        If the file system refuses.
    """
    files = published_after(root, after_attempt, suffix)
    with explained(f"cannot withdraw files that attempts after {after_attempt} published"):
        for file in files:
            file.unlink(missing_ok=True)
        if files:
            sync_folder(root)


def _require_no_links(root: Path, folder: Path) -> None:
    """Check that the way from the sink to a folder of staged files leads nowhere else."""
    while folder != root:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "expected a folder, found a symbolic link", str(folder))
        folder = folder.parent


def _size(path: Path) -> int:
    """Return the size of a file.

    Raises
    ------
    OSError
        If it is no file, such as a symbolic link.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "something else"
        raise OSError(errno.EINVAL, f"expected a file, found {kind}", str(path))
    return found.st_size


def _expose(source: Path, target: Path, size: int) -> None:
    """Give a staged file its final name, unless it has it already."""
    try:
        found = _size(source)
        if found != size:
            raise OSError(
                errno.EIO, f"it was staged with {size} bytes and has {found}", str(source)
            )
        os.link(source, target)
    except FileNotFoundError:
        _require_published(source, target, size)
    except FileExistsError:
        _require_same(source, target, size)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise OSError(
                error.errno,
                f"the file system must allow hard links to files of other users: {error.strerror}",
                str(target),
            ) from error
        raise


def _require_same(source: Path, target: Path, size: int) -> None:
    """Check that a file that is there under both names is one file, or a copy of it."""
    try:
        same = _same_content(source, target)
    except FileNotFoundError:
        # Another driver, which is about to be fenced, publishes the same.
        return _require_published(source, target, size)
    if not same:
        raise _occupied(target) from None
    return None


def _require_published(source: Path, target: Path, size: int) -> None:
    """Check that a file whose staged name is gone has its final name."""
    try:
        found = _size(target)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "neither of the two is there; rows of a completed checkpoint were lost",
            str(source),
        ) from None
    if found != size:
        raise _occupied(target)


def _occupied(target: Path) -> FileExistsError:
    return FileExistsError(
        errno.EEXIST,
        "another file has the final name: another pipeline writes to the same folder, or one "
        "with the same checkpoint ids did before",
        str(target),
    )


def _same_content(left: Path, right: Path) -> bool:
    with left.open("rb") as one, right.open("rb") as other:
        if os.path.sameopenfile(one.fileno(), other.fileno()):
            return True
        while True:
            chunk = one.read(_CHUNK_BYTES)
            if other.read(_CHUNK_BYTES) != chunk:
                return False
            if not chunk:
                return True


def _entries(folder: AnyPath) -> Sequence[AnyPath]:
    try:
        return entries(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; none if it is not there or not a folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_if_empty(folder: Path) -> None:
    # Not empty: other regions of the attempt are still staged. Gone: another sweep did it.
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
