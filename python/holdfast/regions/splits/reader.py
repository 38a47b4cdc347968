"""Reads splits in the tasks of their regions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._checks import require_one_of
from holdfast.regions.base.problem import in_words
from holdfast.regions.splits.file_split import FileSplit

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 65_536


#: Lasting errors of the operating system: the file is to blame.
_OF_THE_FILE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class SplitReadError(RuntimeError):
    """A split cannot be read; it `may_pass` if storage or memory is to blame, and not the file."""

    def __init__(
        self, split: FileSplit, folder: Path, problem: str, *, may_pass: bool = False
    ) -> None:
        super().__init__(f"{split} in {str(folder)!r} cannot be read: {problem}")
        self.problem = problem
        self.may_pass = may_pass


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of files in tasks.

    Columns of the schema that a file lacks are null, its other columns are left out. If this
    `skips`, regions continue without a split that cannot be read.
    """

    folder: Path
    kind: str
    schema: pa.Schema
    skips: bool = False

    def read(self, split: FileSplit) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of a split in the order of the file, with the number of each first row.

        Rows are numbered in the file, from 0. Raises a SplitReadError if the file is gone, changed,
        damaged, or does not fit the schema.
        """
        import pyarrow as pa

        path = self.folder / split.path
        try:
            self._require_unchanged(split, path)
            # Arrow takes no name that is not UTF-8.
            with pa.OSFile(os.fsencode(path)) as file:
                fragment, row = self._fragment(file, split)
                for batch in fragment.to_batches(
                    schema=self.schema, batch_size=BATCH_ROWS, use_threads=False
                ):
                    if batch.num_rows:
                        yield row, batch
                    row += batch.num_rows
            # Its writer may not have finished.
            self._require_unchanged(split, path)
        except SplitReadError:
            raise
        except Exception as e:
            may_pass = isinstance(e, MemoryError) or (
                isinstance(e, OSError) and bool(e.errno) and not isinstance(e, _OF_THE_FILE)
            )
            raise SplitReadError(split, self.folder, in_words(e), may_pass=may_pass) from e

    def _require_unchanged(self, split: FileSplit, path: Path) -> None:
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) != (split.file_bytes, split.modified_ns):
            problem = "it was changed after it was found"
            if split.groups is not None:
                problem += (
                    ". Part of it may have been read: put the file back as it was, or remove it, "
                    "and the rest of it is not read"
                )
            raise SplitReadError(split, self.folder, problem)

    def _fragment(self, file: Any, split: FileSplit) -> tuple[Any, int]:
        """Return the part of the file to read, and the number of its first row in the file."""
        kind = file_format(self.kind)
        if split.groups is None:
            return kind.make_fragment(file), 0
        fragment = kind.make_fragment(file, row_groups=list(range(*split.groups)))
        groups = (fragment.metadata.row_group(number) for number in range(split.groups[0]))
        return fragment, sum(group.num_rows for group in groups)


def file_format(kind: str) -> Any:
    """Return PyArrow's format of that name."""
    import pyarrow.dataset as ds

    formats: dict[str, Any] = {
        "parquet": ds.ParquetFileFormat,
        "arrow": ds.IpcFileFormat,
        "csv": ds.CsvFileFormat,
        "json": ds.JsonFileFormat,
    }
    require_one_of("kind", kind, formats)
    return formats[kind]()
