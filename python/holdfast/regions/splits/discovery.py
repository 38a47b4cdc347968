"""Find the files of a folder, and divide them into splits."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.regions.splits.file_split import HIDDEN, FileSplit

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, order=True, slots=True)
class FoundFile:
    """A file that is there; older ones first."""

    modified_ns: int
    path: str
    size: int


def list_files(folder: Path) -> list[FoundFile]:
    """Return the files below a folder, oldest first.

    Names that begin with ``.`` or ``_`` are hidden, as everywhere in Spark: the writer of a file
    gives it such a name until it is complete.

    Raises
    ------
    OSError
        If the folder cannot be listed.
    """
    return sorted(_walk(folder, ""))


def _walk(folder: Path, prefix: str) -> Iterator[FoundFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(HIDDEN):
                continue
            path = prefix + entry.name
            if entry.is_dir():
                yield from _walk(folder / entry.name, f"{path}/")
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:  # deleted since
                continue
            yield FoundFile(status.st_mtime_ns, path, status.st_size)


def split_file(folder: Path, file: FoundFile, *, kind: str, split_bytes: int) -> list[FileSplit]:
    """Divide a file.

    Parameters
    ----------
    folder : Path
        Of the source.
    file : FoundFile
        The file.
    kind : str
        Format of the file. Only Parquet can be read from the middle, by row groups.
    split_bytes : int
        Row groups are put together up to this size in bytes.

    Returns
    -------
    list of FileSplit
        At least one. A Parquet file whose footer cannot be read is one split: the region that
        reads it fails, and says why.
    """
    whole = FileSplit(
        path=file.path, file_bytes=file.size, modified_ns=file.modified_ns, size=file.size
    )
    if kind != "parquet" or file.size <= split_bytes:
        return [whole]
    sizes = _row_group_bytes(folder / file.path)
    if len(sizes) < 2:
        return [whole]
    splits = []
    first = total = 0
    for number, size in enumerate(sizes, start=1):
        total += size
        if total >= split_bytes or number == len(sizes):
            splits.append(
                FileSplit(
                    path=file.path,
                    file_bytes=file.size,
                    modified_ns=file.modified_ns,
                    groups=(first, number),
                    size=total,
                )
            )
            first, total = number, 0
    return splits


def _row_group_bytes(path: Path) -> list[int]:
    """Return the compressed size of each row group; nothing where the footer cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        LOG.warning("the footer of %s cannot be read", path, exc_info=True)
        return []
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return [
        sum(group.column(index).total_compressed_size for index in range(group.num_columns))
        for group in groups
    ]
