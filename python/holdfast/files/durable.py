"""Durable files and folders that are mounted, and errors that name the operation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Name the operation in an OSError; its kind and number are kept."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{doing}: {error}") from error
        raise OSError(error.errno, f"{doing}: {error.strerror}", error.filename) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make a file that others wrote durable."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_path(root: Path, folder: Path) -> None:
    """Make the names in `folder` durable, and in all folders from `root` down to it.

    Another task may have just created the folders, without a sync. Each name is synced once per
    process, because every sync waits for the device.
    """
    sync_folder(folder)
    while folder != root:
        _sync_name(folder)
        folder = folder.parent
    # This process did not create a parent that it may not read.
    with suppress(PermissionError):
        _sync_name(root)


def _sync_name(folder: Path) -> None:
    found = folder.stat()
    _sync_name_once(folder, found.st_dev, found.st_ino)


# Enough for a few sinks and their latest attempts.
@lru_cache(maxsize=256)
def _sync_name_once(folder: Path, _device: int, _inode: int) -> None:
    """Make the name of a folder durable, once while it is the same folder."""
    sync_folder(folder.parent)
