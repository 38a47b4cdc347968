"""Paths on file systems that are mounted, with the operations of `files.reached.HadoopPath`."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PosixPath
from uuid import uuid4

from holdfast.files.durable import sync_folder
from holdfast.files.hard_links import publish
from holdfast.files.modes import create, make_folder
from holdfast.files.reached import Status


class MountedPath(PosixPath):
    """A file or folder that this process reaches by itself.

    In addition to the methods of `pathlib.Path` it has those of `HadoopPath`, which documents
    them. Names are durable once their folder was synced, unless a method says otherwise.
    """

    __slots__ = ()

    renames = True
    appends = True

    @property
    def local(self) -> Path:
        """The path itself."""
        return self

    @property
    def spark_name(self) -> str:
        """The path for Spark, whose default file system has paths without a scheme."""
        return f"file:{self}"

    def lies_in(self, other: object) -> bool:
        """Return whether the other path is the same, or a folder above it."""
        return isinstance(other, PosixPath) and self.is_relative_to(other)

    def status(self) -> Status:
        """Return the status without following links."""
        found = self.lstat()
        is_folder = stat.S_ISDIR(found.st_mode)
        is_other = not (is_folder or stat.S_ISREG(found.st_mode))
        return Status(is_folder, found.st_size, found.st_mtime_ns // 1_000_000, is_other)

    def entries(self) -> list[tuple[MountedPath, Status]]:
        """Return the content of the folder, by name, without files deleted during the call."""
        found = []
        for path in sorted(self.iterdir()):
            with suppress(FileNotFoundError):
                found.append((path, path.status()))
        return found

    def create(self, content: bytes) -> None:
        """Write a new file, whose content is durable."""
        with open(self, "xb", opener=create) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def create_whole(self, content: bytes) -> None:
        """Write a new file, whole and durable; FileExistsError if the name is taken."""
        staged = self.with_name(f".{self.name}.{uuid4().hex}")
        staged.create(content)
        try:
            os.link(staged, self)
        finally:
            staged.unlink()
        self.parent.sync()

    def copy_to(self, target: str) -> None:
        """Copy a file, whose content is durable."""
        with self.open("rb") as source, open(target, "xb", opener=create) as file:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())

    def replace_text(self, text: str, *, durable: bool = True) -> None:
        """Replace a small file at once for every reader; by default durable, with its name."""
        staged = self.with_suffix(".new")
        with open(staged, "w", opener=create) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        staged.replace(self)
        if durable:
            sync_folder(self.parent)

    def make_folder(self, *, exist_ok: bool = False) -> None:
        """Make a folder with its parents."""
        make_folder(self, exist_ok=exist_ok)

    def sync(self) -> None:
        """Make the names in this folder durable."""
        sync_folder(self)

    def remove_files(self, names: Sequence[str]) -> None:
        """Delete files in this folder that exist."""
        for name in names:
            (self / name).unlink(missing_ok=True)

    def remove_tree(self) -> None:
        """Delete a folder with its content, as far as permitted."""
        shutil.rmtree(self, ignore_errors=True)

    def appear_as(self, name: str) -> None:
        """Give a folder its name, durably; an empty folder of this name is replaced."""
        self.sync()
        os.rename(self, self.with_name(name))
        self.parent.sync()

    def publish(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Give staged files below this folder their final names."""
        publish(self, [(self / staged, self / target, size) for staged, target, size in files])

    def discard(self, staged: Sequence[str]) -> None:
        """Throw away staged files below this folder."""
        self.remove_files(staged)
