"""Find the files of a folder, and divide them into splits.

Files are listed with the standard library. ``pyarrow.fs`` abandons the whole listing at one folder
that it may not enter or one name that is not UTF-8, and lists a folder once for every link to it.
"""

from __future__ import annotations

import itertools
import logging
import os
import stat
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from holdfast.regions.splits.file_split import HIDDEN, FileSplit

LOG: Final = logging.getLogger(__name__)

#: Hadoop's commands copy to names that end with this.
UNFINISHED: Final = "._COPYING_"

#: Bytes of a digest of a Parquet footer.
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, order=True, slots=True)
class FoundFile:
    """A file; older ones sort first."""

    modified_ns: int
    path: str
    size: int


#: Takes the path of a folder or link that cannot be listed, and the reason.
Unlisted = Callable[[str, OSError | str], None]


def list_files(folder: Path, *, known: Container[str], unlisted: Unlisted) -> list[FoundFile]:
    """Return the files below a folder, oldest first.

    Names that begin with ``.`` or ``_`` are hidden, as in Spark: the writer of a file gives it such
    a name until it is complete. Files without a byte are left out. A file or folder that has
    several names, by links, is listed once.

    `known` are names under which files were found before; they precede other names of the same
    file. `unlisted` is told of every subfolder and link that cannot be followed. Raises an OSError
    if the folder itself cannot be listed.
    """
    chosen: dict[object, tuple[tuple[bool, int, str], FoundFile]] = {}
    for rank, identity, file in _Walk(folder, unlisted).files():
        named = (file.path not in known, rank, file.path), file
        chosen[identity] = min(named, chosen.get(identity, named))
    return sorted(file for _, file in chosen.values())


def found_file(folder: Path, path: str) -> FoundFile | None:
    """Return a file in its present form; None if it is missing or empty."""
    try:
        status = (folder / path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _found(path, status)


def _found(path: str, status: os.stat_result) -> FoundFile | None:
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    return FoundFile(status.st_mtime_ns, path, status.st_size)


class _Walk:
    """Lists each folder once: by its own name or its oldest link, so new links rename no file."""

    def __init__(self, folder: Path, unlisted: Unlisted) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._unlisted = unlisted
        self._listed: set[str] = set()
        # Time of creation and name of each link.
        self._links: list[tuple[int, str]] = []

    def files(self) -> Iterator[tuple[int, object, FoundFile]]:
        """Yield the rank of a name, the identity of the file, and the file by that name."""
        yield from self._below("", self._root, rank=0)
        for rank in itertools.count(1):
            if not self._links:
                return
            oldest = min(self._links)
            self._links.remove(oldest)
            yield from self._through(oldest[1], rank)

    def _through(self, path: str, rank: int) -> Iterator[tuple[int, object, FoundFile]]:
        name = self._folder / path
        try:
            status = name.stat()
            real = os.path.realpath(name, strict=True)
        except FileNotFoundError:  # the link leads nowhere now
            return
        except OSError as e:
            self._unlisted(path, e)
            return
        if stat.S_ISDIR(status.st_mode):
            if self._root.startswith(real.rstrip("/") + "/"):
                self._unlisted(path, "it is a link to a folder that this one lies in")
                return
            yield from self._below(f"{path}/", real, rank)
        elif (file := _found(path, status)) is not None:
            yield rank, _identity(status, real), file

    def _below(self, prefix: str, real: str, rank: int) -> Iterator[tuple[int, object, FoundFile]]:
        todo = [(prefix, real)]
        while todo:
            prefix, real = todo.pop()
            if real in self._listed:
                continue
            self._listed.add(real)
            for entry in self._entries(prefix):
                path, at = prefix + entry.name, f"{real}/{entry.name}"
                try:
                    if entry.is_symlink():
                        made_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                        self._links.append((made_ns, path))
                    elif entry.is_dir():
                        todo.append((f"{path}/", at))
                    elif (file := _found(path, status := entry.stat())) is not None:
                        yield rank, _identity(status, at), file
                except FileNotFoundError:  # deleted since
                    continue
                except OSError as e:
                    self._unlisted(path, e)

    def _entries(self, prefix: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._folder / prefix) as entries:
                return [
                    entry
                    for entry in entries
                    if not entry.name.startswith(HIDDEN) and not entry.name.endswith(UNFINISHED)
                ]
        except OSError as e:
            if not prefix:
                raise
            if not isinstance(e, FileNotFoundError):  # else it was deleted since
                self._unlisted(prefix.rstrip("/"), e)
            return []


def _identity(status: os.stat_result, real: str) -> object:
    """Return one identity for a file's names: its number, not always good, only with hard links."""
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and status.st_ino else real


def split_file(folder: Path, file: FoundFile, *, kind: str, split_bytes: int) -> list[FileSplit]:
    """Divide a file into one split or more.

    Only Parquet can be read from the middle, by row groups, which are joined up to `split_bytes`. A
    file with an unreadable footer is one split: the region that reads it fails with the reason.
    """
    whole = FileSplit(
        path=file.path, file_bytes=file.size, modified_ns=file.modified_ns, size=file.size
    )
    if kind != "parquet" or file.size <= split_bytes:
        return [whole]
    footer = read_footer(folder / file.path)
    if footer is None or len(footer.group_bytes) < 2:
        return [whole]
    found: list[FileSplit] = []
    first = total = 0
    for number, size in enumerate(footer.group_bytes, start=1):
        total += size
        if total >= split_bytes or number == len(footer.group_bytes):
            found.append(replace(whole, groups=(first, number), size=total, footer=footer.digest))
            first, total = number, 0
    return [replace(split, parts=len(found)) for split in found]


@dataclass(frozen=True)
class Footer:
    """A Parquet file's row groups' compressed sizes, and a digest of its footer with statistics."""

    group_bytes: list[int]
    digest: str


def read_footer(path: Path) -> Footer | None:
    """Read the footer of a Parquet file; None if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pa.OSFile(os.fsencode(path)) as file:
            footer = pq.read_metadata(file)
            # Before its length and the magic number.
            file.seek(file.size() - footer.serialized_size - 8)
            content = file.read(footer.serialized_size)
    except (OSError, pa.ArrowException):
        LOG.warning("the footer of %r cannot be read", str(path), exc_info=True)
        return None
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    group_bytes = [
        sum(group.column(index).total_compressed_size for index in range(group.num_columns))
        for group in groups
    ]
    return Footer(group_bytes, blake2b(content, digest_size=DIGEST_BYTES).hexdigest())
