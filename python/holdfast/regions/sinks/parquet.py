"""A two-phase sink that writes Parquet files into one folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, cast, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast._core import Staged
from holdfast.regions.base.durable import explained, sync_path
from holdfast.regions.base.hadoop_path import HadoopPath
from holdfast.regions.base.paths import AnyPath, any_folder, recorded_folder
from holdfast.regions.sinks.layout import staged_name, target_name
from holdfast.regions.sinks.output_file import OutputFile, scratch_path
from holdfast.regions.sinks.publish import (
    publish,
    published_after,
    sweep,
    unpublished,
    withdraw,
)
from holdfast.regions.sinks.sink import OutputStore, Stage, TwoPhaseSink

Compression = Literal["snappy", "zstd", "gzip", "lz4", "none"]

DEFAULT_COMPRESSION: Final[Compression] = "zstd"

SUFFIX: Final = ".parquet"

# In memory, before encoding. Small batches are gathered: a row group each would be slow to read.
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024

# The encoder writes a file in many small pieces, and each takes the interpreter's lock.
WRITE_BYTES: Final = 256 * 1024

# Files that are synced at the same time: file systems put such syncs together.
_SYNC_THREADS: Final = 8


@dataclass(frozen=True, init=False)
class ParquetSink(TwoPhaseSink):
    """Publishes the output of regions as Parquet files in a folder, exactly once.

    Each region writes at most one file per checkpoint. It is staged in ``_holdfast/staged``, which
    readers such as Spark and pyarrow.dataset leave out, and appears in the folder by one atomic
    step when the checkpoint that contains the region's state is durable. Its name is made from
    the checkpoint attempt and the region, so that publishing it again changes nothing.

    The folder belongs to one pipeline, although files of other writers may be in it.

    Parameters
    ----------
    path : str or os.PathLike
        Folder, created with the first output: a path of a file system that is mounted on driver
        and executors and has hard links, or the URI of a folder on one that Spark reaches, such as
        ``hdfs://namenode/out`` or ``s3a://bucket/out``.
    compression : {"snappy", "zstd", "gzip", "lz4", "none"}, default "zstd"
        How the files are compressed. Spark reads each of them.

    Attributes
    ----------
    root : pathlib.Path or HadoopPath
        The folder's absolute path.

    Raises
    ------
    ValueError
        If the path is not one of a folder, the compression is not one of these, or Spark's own file
        sink keeps a list of the folder's files, which hides all others from Spark.
    NotADirectoryError
        If the path leads to something that is not a folder.
    """

    root: AnyPath
    compression: Compression

    can_withdraw = True

    def __init__(
        self,
        path: str | os.PathLike[str] | HadoopPath,
        *,
        compression: Compression = DEFAULT_COMPRESSION,
    ) -> None:
        if compression not in get_args(Compression):
            raise ValueError(
                f"compression={compression!r} is not allowed: expected one of "
                f"{', '.join(get_args(Compression))}"
            )
        root = any_folder(path)
        if root.exists() and not root.is_dir():
            raise NotADirectoryError(f"cannot write to {root}: expected a folder, found a file")
        if (root / "_spark_metadata").exists():
            raise ValueError(
                f"cannot write to {root}: Spark's file sink has written there, and because of its "
                "_spark_metadata Spark would not see other files; use another folder"
            )
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "compression", compression)

    @property
    def location(self) -> str:
        """The folder's absolute path."""
        return str(self.root)

    @property
    def owned_folder(self) -> str:
        """The folder, which belongs to one pipeline."""
        return str(self.root)

    def at(self, location: str) -> ParquetSink | None:
        """Return a sink for another folder.

        Parameters
        ----------
        location : str
            `location` of a sink of this class.
        """
        return ParquetSink(recorded_folder(location), compression=self.compression)

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> ParquetStage:
        """Begin the output of a region in a checkpoint attempt.

        Nothing is created before there are rows.

        Parameters
        ----------
        region : str
            Name of the region.
        attempt : int
            Id of the checkpoint attempt, not negative.
        schema : pyarrow.Schema
            Columns of every batch that will be written.

        Raises
        ------
        ValueError
            If the attempt is negative.
        """
        if attempt < 0:
            raise ValueError(f"attempt={attempt} is not allowed: expected an id from 0")
        return ParquetStage(self, region=region, attempt=attempt, schema=schema)

    def persist(
        self, stages: Sequence[Stage], store: OutputStore | None
    ) -> Sequence[Exception | None]:
        """Make closed stages durable, so that acknowledgements may depend on them (R3).

        Their files are synced at the same time, and the folders that hold them once.

        Parameters
        ----------
        stages : sequence of ParquetStage
            Stages of this sink that were closed and had rows.
        store : OutputStore
            Where their files go if only the JVM reaches the folder; None without one.

        Returns
        -------
        list of (Exception or None)
            For each stage, in this order, what went wrong. Such a stage is discarded.
        """
        written = cast("Sequence[ParquetStage]", stages)
        if len(written) == 1:
            found = [_persisted(written[0], store)]
        else:
            with ThreadPoolExecutor(min(_SYNC_THREADS, max(1, len(written)))) as threads:
                found = list(threads.map(lambda stage: _persisted(stage, store), written))
        folders: dict[Path, Exception | None] = {}
        for position, stage in enumerate(written):
            if found[position] is None and (folder := stage.local_folder) is not None:
                if folder not in folders:
                    folders[folder] = stage.persist_folder(folder)
                if (error := folders[folder]) is not None:
                    stage.discard()
                    found[position] = error
        return found

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Publish staged files, after the metadata of their checkpoint is durable (R81).

        Each appears whole, and durable on return. What is published already is left alone, so
        that a commit may be repeated after a crash at any moment.

        Parameters
        ----------
        checkpoint : int
            Its id; names have it already.
        staged : iterable of Staged
            What the healthy regions of the checkpoint staged (R80).

        Raises
        ------
        FileNotFoundError
            If a file is neither staged nor published any more.
        FileExistsError
            If another file has the final name of a staged one. It is not overwritten.
        OSError
            If a staged file is damaged, or the file system refuses.
        ValueError
            If a path or a name is none that a stage of this class makes.
        """
        publish(self.root, staged, SUFFIX)

    def unpublished(self, staged: Iterable[Staged]) -> list[str]:
        """Return the paths that staged files will have and no file has yet. Changes nothing.

        Parameters
        ----------
        staged : iterable of Staged
            What a checkpoint staged.

        Raises
        ------
        ValueError
            If a path or a name is none that a stage of this class makes.
        """
        return [str(file) for file in unpublished(self.root, staged, SUFFIX)]

    def published_after(self, attempt: int) -> list[str]:
        """Return the paths of the files that later attempts published.

        Parameters
        ----------
        attempt : int
            The newest attempt that is not asked about.
        """
        return [str(file) for file in published_after(self.root, attempt, SUFFIX)]

    def withdraw(self, after_attempt: int) -> None:
        """Remove the files that later attempts published, durable on return.

        For a pipeline that goes back to an older checkpoint: its rows come again. Readers that
        have seen them do not learn of it. Files of other writers stay.

        Parameters
        ----------
        after_attempt : int
            The newest attempt whose files stay.

        Raises
        ------
        OSError
            If the file system refuses.
        """
        withdraw(self.root, after_attempt, SUFFIX)

    def sweep(self, before_attempt: int) -> None:
        """Remove the staged files of attempts before the given one.

        Published files stay. Repeating it does no harm. Call it when no task of these attempts
        runs any more (R80) and what is owed of them was committed.

        Parameters
        ----------
        before_attempt : int
            The oldest attempt whose staged files stay.

        Raises
        ------
        OSError
            If the file system refuses.
        """
        sweep(self.root, before_attempt)


class ParquetStage(Stage):
    """Output of one region in one attempt; see `ParquetSink.writer`.

    A stage ends once: by `close`, by `discard`, or by a failed `write`. As a context manager it
    discards what was not closed.
    """

    def __init__(self, sink: ParquetSink, *, region: str, attempt: int, schema: pa.Schema) -> None:
        self._root = sink.root
        self._compression = sink.compression
        self._schema = schema
        self._path = staged_name(region, attempt)
        self._target = target_name(region, attempt, suffix=SUFFIX)
        self._named = f"the output of region {region!r} in attempt {attempt}"
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._rows = 0
        self._file: OutputFile | None = None
        self._stream: Any = None
        self._writer: Any = None
        self._ended = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. If that fails, the stage is discarded.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows with the columns of the stage's schema. Kept until enough are together for a row
            group, at most 32 MiB and a batch.

        Raises
        ------
        ValueError
            If the batch has other columns, or the stage has ended.
        OSError
            If the file system refuses.
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
        """End the file. It is not durable before `ParquetSink.persist`.

        Returns
        -------
        Staged or None
            What `ParquetSink.commit` needs, with paths relative to the folder, so that the folder
            can be moved; None if there were no rows.

        Raises
        ------
        ValueError
            If the stage has ended.
        OSError
            If the file system refuses. The stage is discarded.
        """
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
        """Where its file is; None if only the JVM reaches it."""
        if isinstance(self._root, HadoopPath):
            return None
        return (self._root / self._path).parent

    def persist(self, store: OutputStore | None = None) -> None:
        """Make the content of the closed file durable, or discard the stage.

        Its name is durable as well where `local_folder` is None.

        Raises
        ------
        OSError
            If the file system refuses.
        """
        with self._or_discard():
            if self._file is not None and isinstance(self._root, HadoopPath):
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
        except OSError as error:
            return error
        return None

    def discard(self) -> None:
        """Throw the rows away, closed or not. Never after they were acknowledged."""
        self._ended = True
        self._pending.clear()
        if self._file is not None:
            self._file.drop()
        # They write a footer and what is in the buffer when they are collected, which goes nowhere.
        self._writer = self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._ended:
            self.discard()

    def _write_pending(self) -> OutputFile:
        """Write what was gathered as a row group, or a few if it is very much."""
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
        """Return where to write the file: where it is staged, if this process gets there."""
        folder = self.local_folder
        if folder is None:
            return scratch_path(Path(self._path).name)
        folder.mkdir(parents=True, exist_ok=True)
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


def _persisted(stage: ParquetStage, store: OutputStore | None) -> Exception | None:
    try:
        stage.persist(store)
    except Exception as error:
        # Whatever a file system says of one file is no reason to lose the others.
        return error
    return None


def _columns(schema: pa.Schema) -> str:
    return ", ".join(
        f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema
    )
