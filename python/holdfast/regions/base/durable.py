"""Durable files and folders, and errors of the file system that say what failed.

On file systems that the JVM reaches, whatever returns without an error is durable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Say in an OSError what was being done; its kind and number stay."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{doing}: {error}") from error
        raise OSError(error.errno, f"{doing}: {error.strerror}", error.filename) from error


def sync_folder(folder: AnyPath) -> None:
    """Make the names in a folder durable."""
    if not isinstance(folder, HadoopPath):
        _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make a file durable that others wrote."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_number(path: AnyPath, number: int) -> None:
    """Replace a file that holds a number, as `write_text`."""
    write_text(path, str(number))


def write_text(path: AnyPath, text: str) -> None:
    """Replace a small file: durably, and at once for every reader."""
    if isinstance(path, HadoopPath):
        path.write_text(text)
        return
    staged = path.with_suffix(".new")
    with staged.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
    sync_folder(path.parent)


def sync_path(root: Path, folder: Path) -> None:
    """Make the names in `folder` durable, and those of all folders from `root` down to it.

    The folders may have been created by another task just now: that they are there does not mean
    that they stay. What this process has made durable before is not synced again, because every
    sync waits for the device.
    """
    sync_folder(folder)
    while folder != root:
        _sync_name(folder)
        folder = folder.parent
    # A folder above that must not be read was not created here, and needs nothing.
    with suppress(PermissionError):
        _sync_name(root)


def _sync_name(folder: Path) -> None:
    found = folder.stat()
    _sync_name_once(folder, found.st_dev, found.st_ino)


# For the folders of a few sinks and of their latest attempts.
@lru_cache(maxsize=256)
def _sync_name_once(folder: Path, _device: int, _inode: int) -> None:
    """Make the name of a folder durable, once while it is the same folder."""
    sync_folder(folder.parent)
