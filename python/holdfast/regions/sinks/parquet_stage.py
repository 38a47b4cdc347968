"""Output of one region in one attempt, or of several together, as a Parquet file."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, cast

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast._core import Staged
from holdfast.files.durable import explained, sync_path
from holdfast.files.modes import create, make_folder
from holdfast.files.paths import AnyPath
from holdfast.regions.sinks.layout import staged_name, target_name
from holdfast.regions.sinks.sink import OutputStore, Stage

SUFFIX: Final = ".parquet"

# In memory, before encoding. Small batches are gathered: a row group each would be slow to read.
ROW_GROUP_BYTES: Final = 32 << 20

# The encoder writes many small pieces, and each write takes the interpreter's lock.
WRITE_BYTES: Final = 256 * 1024

_CLOSED: Final = -1


class ParquetStage(Stage):
    """Output of regions in one attempt; see `ParquetSink.writer` and `ParquetSink.stage_together`.

    It ends once: by `close`, `discard` or a failed `write`. A context manager discards open rows.
    """

    def __init__(
        self,
        root: AnyPath,
        compression: str,
        *,
        regions: Sequence[str],
        attempt: int,
        schema: pa.Schema,
    ) -> None:
        self._root = root
        self._compression = compression
        self._schema = schema
        self._regions = regions
        self._attempt = attempt
        named = f"region {regions[0]!r}" if len(regions) == 1 else f"{len(regions)} regions"
        self._named = f"the output of {named} in attempt {attempt}"
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._rows = 0
        self._file: OutputFile | None = None
        self._stream: Any = None
        self._writer: Any = None
        self._ended = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, kept until they fill a row group: at most 32 MiB and a batch.

        A failure discards the stage. Raises a ValueError for other columns or an ended stage.
        """
        self._require_open()
        if not batch.schema.equals(self._schema):
            self.discard()
            raise ValueError(
                f"{self._named} does not have the declared columns: expected "
                f"{_columns(self._schema)}; found {_columns(batch.schema)}"
            )
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES:
            with self._or_discard():
                self._write_pending()

    def close(self) -> Staged | None:
        """End the file, not yet durable. Paths are relative, so that the folder can be moved."""
        self._require_open()
        if self._rows == 0:
            self._ended = True
            return None
        with self._or_discard():
            file = self._write_pending()
            self._writer.close()
            self._stream.close()
            size = file.size()
        # Stages are kept until their task ends, and there is one for each region: no buffers.
        self._writer = self._stream = None
        self._ended = True
        return Staged(self._path, self._target, self._rows, size)

    @property
    def local_folder(self) -> Path | None:
        """The folder of its file; None if only the JVM reaches it."""
        return (self._root / self._path).parent.local

    def persist(self, store: OutputStore | None = None) -> None:
        """Make the file durable (its name too if `local_folder` is None), or discard the stage."""
        with self._or_discard():
            if self._file is not None and self.local_folder is None:
                if store is None:
                    raise OSError(errno.ENOTSUP, "only a Spark executor reaches it")
                staged, target = self._root / self._path, self._root / self._target
                store.stage(str(self._file.path), str(staged), str(target))
                self._file.drop()
            elif self._file is not None:
                self._file.persist()

    def persist_folder(self, folder: Path) -> OSError | None:
        """Make the names of all files in its local folder durable."""
        try:
            with self._explained():
                sync_path(cast("Path", self._root), folder)
                return None
        except OSError as error:
            return error

    def discard(self) -> None:
        """Drop the rows, closed or not. Never after they were acknowledged."""
        self._ended = True
        self._pending.clear()
        if self._file is not None:
            self._file.drop()
        # They write a footer and their buffer when they are collected; that goes nowhere.
        self._writer = self._stream = None

    @cached_property
    def _path(self) -> str:
        return staged_name(self._regions, self._attempt)

    @property
    def _target(self) -> str:
        return target_name(self._regions, self._attempt, suffix=SUFFIX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._ended:
            self.discard()

    def _write_pending(self) -> OutputFile:
        """Write the gathered rows as a row group, or as a few if they are very many."""
        if self._file is None:
            self._file = OutputFile(self._new_path())
            self._stream = pa.BufferedOutputStream(
                pa.PythonFile(self._file, mode="w"), buffer_size=WRITE_BYTES
            )
            self._writer = pq.ParquetWriter(
                self._stream, self._schema, compression=self._compression
            )
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
            self._pending.clear()
            self._pending_bytes = 0
        return self._file

    def _new_path(self) -> Path:
        """Return the path to write to: in the staging folder, if this process reaches that."""
        folder = self.local_folder
        if folder is None:
            return scratch_path(Path(self._path).name)
        make_folder(folder, exist_ok=True)
        return folder / Path(self._path).name

    def _require_open(self) -> None:
        if self._ended:
            raise ValueError(f"{self._named} has ended: it was closed or discarded")

    @contextmanager
    def _or_discard(self) -> Iterator[None]:
        try:
            with self._explained():
                yield
        except BaseException:
            self.discard()
            raise

    def _explained(self) -> AbstractContextManager[None]:
        return explained(f"cannot stage {self._named} in {self._root}")


def require_writable(batches: Sequence[pa.RecordBatch]) -> None:
    """Encode rows into nothing; ArrowException if Parquet does not have all of their values."""
    rows = pa.Table.from_batches(batches)
    with pq.ParquetWriter(pa.MockOutputStream(), rows.schema) as nowhere:
        nowhere.write_table(rows)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema
    )


class OutputFile:
    """A new file that either becomes durable or disappears without a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = create(path, flags)

    @property
    def closed(self) -> bool:
        """False, also after the end: see `write`."""
        return False

    def write(self, data: bytes) -> int:
        """Write all of the bytes; after the end, drop them: a collected encoder still writes."""
        rest = memoryview(data)
        while self._descriptor != _CLOSED and rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: `persist` or `drop` ends the file, and not PyArrow."""

    def size(self) -> int:
        """Return how many bytes were written."""
        return os.fstat(self._descriptor).st_size

    def persist(self) -> None:
        """Make the content durable and close the file.

        It remains open until then: a later descriptor may not learn that an earlier write failed.
        """
        os.fsync(self._descriptor)
        self._close()

    def drop(self) -> None:
        """Close and remove the file; may be repeated."""
        self._close()
        # The sweep removes a remaining file.
        with suppress(OSError):
            self.path.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)


def scratch_path(name: str) -> Path:
    """Return a path that no other task uses, in a folder that Spark cleans up."""
    # Spark tells its Python workers the folders of its own files.
    folders = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return Path(folders.partition(",")[0]) / f"holdfast-{name}"
