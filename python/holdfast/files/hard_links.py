"""Publish staged files on a mounted file system, each by one atomic step.

A file is linked under its final name and the folder is synced before the staged name is removed.
Whenever the machine stops, one of the names leads to the whole file. A link never replaces a file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.files.durable import explained, sync_folder

_CHUNK_BYTES: Final = 1 << 20
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def publish(root: Path, files: Sequence[tuple[Path, Path, int]]) -> None:
    """Give staged files below a folder their final names, see `ParquetSink.commit`."""
    with explained(f"cannot publish staged files in {root}"):
        for folder in sorted({source.parent for source, _, _ in files}):
            _require_no_links(root, folder)
    for source, target, size in files:
        with explained(f"cannot publish the staged file {source} as {target}"):
            _expose(source, target, size)
    with explained(f"cannot make the published files in {root} durable"):
        for folder in sorted({target.parent for _, target, _ in files}):
            sync_folder(folder)
    # The next sweep removes the remaining names, or says why it cannot.
    for source, _, _ in files:
        with suppress(OSError):
            source.unlink(missing_ok=True)


def _require_no_links(root: Path, folder: Path) -> None:
    """Check that no symbolic link leads from the sink's folder to a folder of staged files."""
    while folder != root:
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "expected a folder, found a symbolic link", str(folder))
        folder = folder.parent


def _size(path: Path) -> int:
    """Return the size of a file, and refuse anything else, such as a symbolic link."""
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
    """Check that the files of both names are one file, or equal."""
    try:
        same = _same_content(source, target)
    except FileNotFoundError:
        # Another driver, soon fenced, may have published it.
        _require_published(source, target, size)
    else:
        if not same:
            raise _occupied(target) from None


def _require_published(source: Path, target: Path, size: int) -> None:
    """Check that a file whose staged name is gone has its final name."""
    try:
        found = _size(target)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "neither of the two is there, and no record says that it was published",
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
