"""Modes of files that this process makes on local disks, by Hadoop's umask if that was set."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from holdfast._core import set_local_umask

_ALL_OF_FILE = 0o666
_ALL_OF_FOLDER = 0o777

#: One per process, like the umask that it replaces.
_umask: int | None = None


def follow(umask: int | None) -> None:
    """Use a umask, such as ``0o077``, for new files on local disks; None: the process's own."""
    global _umask
    _umask = umask
    set_local_umask(umask)


def followed() -> int | None:
    """Return the umask that `follow` was given."""
    return _umask


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder with its parents; one may be there with `exist_ok`."""
    try:
        path.mkdir(_granted(_ALL_OF_FOLDER))
    except FileNotFoundError:
        make_folder(path.parent, exist_ok=True)
        make_folder(path, exist_ok=exist_ok)
    except OSError:
        # `Path.mkdir` does the same: some systems refuse to make an existing folder.
        if not exist_ok or not path.is_dir():
            raise
    else:
        _grant(path, _ALL_OF_FOLDER)


def create(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, or make it if the flags say so: an opener of `open`."""
    descriptor = os.open(path, flags, _granted(_ALL_OF_FILE))
    if flags & os.O_CREAT:
        _grant(descriptor, _ALL_OF_FILE)
    return descriptor


def _granted(rights: int) -> int:
    return rights if _umask is None else rights & ~_umask


def _grant(made: Path | int, rights: int) -> None:
    """Give a new file or folder its mode; a folder keeps the bit that passes on its group."""
    if _umask is None:
        return
    found = stat.S_IMODE(os.stat(made).st_mode)
    wanted = found & ~0o777 | _granted(rights)
    if found != wanted:
        # It existed, and may belong to another user.
        with suppress(PermissionError):
            os.chmod(made, wanted)
