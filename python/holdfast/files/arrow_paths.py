"""Paths on the file systems of `pyarrow.fs`, for readers without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.files.paths import AnyPath, is_remote_uri, local_folder

if TYPE_CHECKING:
    import pyarrow.fs


@dataclass(frozen=True)
class ArrowPath:
    """A path in a file system, with the methods of `pathlib.Path` that readers use."""

    files: Any
    path: str

    def __str__(self) -> str:
        return f"{self.files.type_name}:{self.path}"

    def __truediv__(self, name: str | os.PathLike[str]) -> ArrowPath:
        return ArrowPath(self.files, f"{self.path}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def is_dir(self) -> bool:
        """Return whether it is a folder, or on an object store whether objects are below it."""
        return bool(self._info().type.name == "Directory")

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return bool(self._info().type.name == "File")

    def iterdir(self) -> Iterator[ArrowPath]:
        """Yield the content of a folder."""
        from pyarrow.fs import FileSelector

        for found in self.files.get_file_info(FileSelector(self.path)):
            yield ArrowPath(self.files, found.path)

    def read_bytes(self) -> bytes:
        """Return the content of a file."""
        with self.files.open_input_file(self.path) as file:
            return bytes(file.read())

    def read_text(self, *, errors: str = "strict") -> str:
        """Return the content of a file in UTF-8."""
        return self.read_bytes().decode(errors=errors)

    def make_folder(self, *, exist_ok: bool) -> None:
        """Make a folder with its parents, if the file system has folders."""
        self.files.create_dir(self.path, recursive=True)

    def create(self, content: bytes) -> None:
        """Write a file, which nobody else may write."""
        with self.files.open_output_stream(self.path) as file:
            file.write(content)

    def unlink(self, *, missing_ok: bool) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.path)

    def open(self, name: str) -> Any:
        """Open a file of the folder, to read ranges of it."""
        return self.files.open_input_file((self / name).path)

    def at(self, uri: str) -> ArrowPath:
        """Return a folder of the same file system by its URI."""
        inside = re.sub("^[A-Za-z0-9]+://", "", uri)
        # Paths begin with a bucket, or on HDFS at the root.
        if self.path.startswith("/"):
            inside = f"/{inside.partition('/')[2]}"
        return ArrowPath(self.files, inside)

    def _info(self) -> Any:
        return self.files.get_file_info(self.path)


#: Paths that readers take.
ReadPath = AnyPath | ArrowPath


def readable_folder(path: str | os.PathLike[str], files: pyarrow.fs.FileSystem | None) -> ReadPath:
    """Return a folder: in a file system, or by its URI, or on a mounted file system.

    Raises a ValueError if no file system has the scheme of the URI.
    """
    if files is not None:
        return ArrowPath(files, os.fspath(path).rstrip("/"))
    if not (isinstance(path, str) and is_remote_uri(path)):
        return local_folder(path)
    # The schemes of Hadoop's client for S3.
    uri = re.sub("^s3[an]:", "s3:", path)
    if uri.startswith("s3:"):
        # Small files take one request then. Older releases of PyArrow do not know it.
        with suppress(ValueError):
            return _by_uri(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
    return _by_uri(uri)


def _by_uri(uri: str) -> ArrowPath:
    from pyarrow.fs import FileSystem

    files, inside = FileSystem.from_uri(uri)
    return ArrowPath(files, inside.rstrip("/"))
