"""Read splits, in the task of the region that has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast._checks import require_one_of
from holdfast.regions.splits.file_split import FileSplit

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 65_536


class SplitReadError(RuntimeError):
    """A split cannot be read.

    Parameters
    ----------
    split : FileSplit
        The split.
    folder : Path
        Of the source.
    problem : str
        What is wrong.
    """

    def __init__(self, split: FileSplit, folder: Path, problem: str) -> None:
        super().__init__(f"{split} in {folder} cannot be read: {problem}")


@dataclass(frozen=True)
class SplitReader:
    """Reads splits of files. Travels to the tasks.

    Parameters
    ----------
    folder : Path
        Where the files are, for driver and executors alike.
    kind : str
        Format of the files, see `FileSplits`.
    schema : pyarrow.Schema
        Of the rows. Columns that a file does not have are null, others it has are left out.
    """

    folder: Path
    kind: str
    schema: pa.Schema

    def read(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, in the order of the file.

        Raises
        ------
        SplitReadError
            If the file is gone, was changed, is damaged, or does not fit the schema.
        """
        import pyarrow as pa

        path = self.folder / split.path
        try:
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) != (split.file_bytes, split.modified_ns):
                raise SplitReadError(
                    split,
                    self.folder,
                    "it was changed after it was found; write a new file under another name",
                )
            for batch in self._fragment(path, split).to_batches(
                schema=self.schema, batch_size=BATCH_ROWS, use_threads=False
            ):
                if batch.num_rows:
                    yield batch
        except (OSError, pa.ArrowException) as e:
            raise SplitReadError(split, self.folder, f"{type(e).__name__}: {e}") from e

    def _fragment(self, path: Path, split: FileSplit) -> Any:
        from pyarrow.fs import LocalFileSystem

        kind = file_format(self.kind)
        if split.groups is None:
            return kind.make_fragment(str(path), LocalFileSystem())
        groups = list(range(*split.groups))
        return kind.make_fragment(str(path), LocalFileSystem(), row_groups=groups)


def file_format(kind: str) -> Any:
    """Return PyArrow's format of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    import pyarrow.dataset as ds

    formats: dict[str, Any] = {
        "parquet": ds.ParquetFileFormat,
        "arrow": ds.IpcFileFormat,
        "csv": ds.CsvFileFormat,
        "json": ds.JsonFileFormat,
    }
    require_one_of("kind", kind, formats)
    return formats[kind]()
