"""A two-phase sink that writes Parquet files into one folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from holdfast._checks import require_bool, require_int, require_one_of
from holdfast._core import Staged
from holdfast.files.durable import explained
from holdfast.files.paths import (
    AnyPath,
    any_folder,
    listed,
    listed_with_status,
    recorded_folder,
)
from holdfast.files.reached import HadoopPath
from holdfast.regions.sinks.layout import (
    STAGED_FOLDER,
    attempt_of,
    own_files,
    own_target,
    published_attempt,
)
from holdfast.regions.sinks.parquet_stage import SUFFIX, ParquetStage, require_writable
from holdfast.regions.sinks.readable import require_readable
from holdfast.regions.sinks.sink import (
    OutputStore,
    Stage,
    TwoPhaseSink,
    failure_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

Compression = Literal["snappy", "zstd", "gzip", "lz4", "none"]

DEFAULT_COMPRESSION: Final[Compression] = "zstd"

DEFAULT_TARGET_FILE_BYTES: Final = 128 << 20

# Files that are synced at the same time: file systems combine the syncs.
_SYNC_THREADS: Final = 8


@dataclass(frozen=True, init=False)
class ParquetSink(TwoPhaseSink):
    """Publishes the output of regions as Parquet files in a folder, exactly once.

    The regions of a task write one file per checkpoint. The file is staged in
    ``_holdfast/staged``, which readers such as Spark and pyarrow.dataset skip. It appears in the
    folder by one atomic step when the checkpoint with the state of its regions is durable. Its name
    comes from the attempt and the regions, so publishing it again changes nothing. The folder
    belongs to one pipeline, although files of other writers may be in it.

    Parameters
    ----------
    path : str or os.PathLike
        Folder, created with the first output: a path of a file system that is mounted on driver
        and executors and has hard links, or the URI of a folder on one that Spark reaches, such as
        ``hdfs://namenode/out`` or ``s3a://bucket/out``.
    compression : {"snappy", "zstd", "gzip", "lz4", "none"}, default "zstd"
        How the files are compressed. Spark reads each of them.
    per_region : bool, default False
        Write a file of its own for each region.
    target_file_bytes : int, default 128 MiB
        Bytes of rows in memory after which a task begins another file.

    Attributes
    ----------
    root : pathlib.Path or HadoopPath
        The folder's absolute path.

    Raises
    ------
    ValueError
        If the path is no folder's, the compression is unknown, or Spark's own file sink keeps a
        list of the folder's files, which hides all others from Spark.
    NotADirectoryError
        If the path leads to something that is not a folder.
    """

    root: AnyPath
    compression: Compression
    per_region: bool
    target_file_bytes: int

    can_withdraw = True

    def __init__(
        self,
        path: str | os.PathLike[str] | HadoopPath,
        *,
        compression: Compression = DEFAULT_COMPRESSION,
        per_region: bool = False,
        target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    ) -> None:
        require_one_of("compression", compression, get_args(Compression))
        per_region = require_bool("per_region", per_region)
        target_file_bytes = require_int("target_file_bytes", target_file_bytes, at_least=1)
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
        object.__setattr__(self, "per_region", per_region)
        object.__setattr__(self, "target_file_bytes", target_file_bytes)

    @property
    def location(self) -> str:
        """The folder's absolute path."""
        return str(self.root)

    @property
    def owned_folder(self) -> str:
        """The folder, which belongs to one pipeline."""
        return str(self.root)

    def at(self, location: str) -> ParquetSink | None:
        """Return a sink for another folder."""
        return ParquetSink(recorded_folder(location), compression=self.compression)

    def require_fit(self, schema: pa.Schema) -> None:
        """Check that readers get the columns of a schema, see `require_readable`."""
        require_readable(schema, by="write_parquet")

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> ParquetStage:
        """Begin the output of a region in an attempt. Creates nothing before there are rows."""
        if attempt < 0:
            raise ValueError(f"attempt={attempt} is not allowed: expected an id from 0")
        return self._stage([region], attempt, schema)

    @property
    def shared_bytes(self) -> int:
        """Bytes of rows after which a task begins another file; 0 if regions share none."""
        return 0 if self.per_region else self.target_file_bytes

    def stage_together(
        self,
        rows: Mapping[str, Sequence[pa.RecordBatch]],
        attempt: int,
        schema: pa.Schema,
        store: OutputStore | None,
    ) -> Mapping[str, Staged | BaseException]:
        """Write a file with the output of several regions, which all acknowledge or none (R84).

        If each region's rows can be encoded separately, an error is one of all regions.
        """
        stage = self._stage(list(rows), attempt, schema)
        try:
            for batch in chain.from_iterable(rows.values()):
                stage.write(batch)
            whole = cast("Staged", stage.close())
        except (Exception, SystemExit) as error:
            errors = {
                region: failure_of(partial(require_writable, batches))
                for region, batches in rows.items()
            }
            own = {region: wrong for region, wrong in errors.items() if wrong is not None}
            return own or dict.fromkeys(rows, error)
        (failure,) = self.persist([stage], store)
        if failure is not None:
            raise failure
        return {
            region: Staged(whole.path, whole.target, sum(map(len, batches)), whole.bytes)
            for region, batches in rows.items()
        }

    def _stage(self, regions: Sequence[str], attempt: int, schema: pa.Schema) -> ParquetStage:
        return ParquetStage(
            self.root, self.compression, regions=regions, attempt=attempt, schema=schema
        )

    def persist(
        self, stages: Sequence[Stage], store: OutputStore | None
    ) -> Sequence[BaseException | None]:
        """Make closed stages durable (R3): all files at the same time, and each folder once."""
        written = cast("Sequence[ParquetStage]", stages)
        steps = [partial(stage.persist, store) for stage in written]
        if len(steps) == 1:
            found = [failure_of(steps[0])]
        else:
            with ThreadPoolExecutor(min(_SYNC_THREADS, max(1, len(steps)))) as threads:
                found = list(threads.map(failure_of, steps))
        folders: dict[Path, OSError | None] = {}
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

        Each file appears whole, and durable on return. Published files remain unchanged, so a
        commit may be repeated after a crash at any moment.

        Raises a FileNotFoundError if a file is neither staged nor published, a FileExistsError if
        something else has its final name, and a ValueError if no stage of the sink makes its path
        or name. Raises an OSError if a staged file is damaged, a symbolic link takes the
        place of the file or its folder, or the file system refuses.
        """
        if files := own_files(self.root, staged, SUFFIX):
            self.root.publish(files)
            for folder in sorted({(self.root / path).parent for path, _, _ in files}):
                # The sweep that follows removes a remaining folder, or says why it cannot.
                with suppress(OSError):
                    _remove_if_empty(folder)

    def unpublished(self, staged: Iterable[Staged]) -> list[str]:
        """Return the paths that staged files will have and no file has yet. Changes nothing."""
        with explained(f"cannot look for published files in {self.root}"):
            found = listed_with_status(self.root)
            sizes = {path.name: status.st_size for path, status in found if status.is_file}
            return [
                str(self.root / target)
                for _, target, size in own_files(self.root, staged, SUFFIX)
                if sizes.get(target) != size
            ]

    def published_after(self, attempt: int) -> list[str]:
        """Return the paths of the files that later attempts published."""
        return list(map(str, self._published_after(attempt)))

    def withdraw(self, after_attempt: int) -> None:
        """Remove only files that later attempts published, durably. Readers are not told."""
        files = self._published_after(after_attempt)
        with explained(f"cannot withdraw files that attempts after {after_attempt} published"):
            for file in files:
                file.unlink(missing_ok=True)
            if files:
                self.root.sync()

    def sweep(self, before_attempt: int) -> None:
        """Remove only the staged files of earlier attempts (R80)."""
        staged = self.root / STAGED_FOLDER
        doing = f"cannot remove staged files of attempts before {before_attempt} in {staged}"
        with explained(doing):
            if staged.parent.is_symlink() or staged.is_symlink():
                return
            for folder, status in listed_with_status(staged):
                attempt = attempt_of(folder.name)
                if attempt is None or attempt >= before_attempt or not status.is_folder:
                    continue
                names = (f"{STAGED_FOLDER}/{folder.name}/{path.name}" for path in listed(folder))
                own = [name for name in names if own_target(name, "") is not None]
                if own:
                    self.root.discard(own)
                _remove_if_empty(folder)

    def _published_after(self, attempt: int) -> list[AnyPath]:
        with explained(f"cannot look for published files in {self.root}"):
            found = ((path, published_attempt(path.name, SUFFIX)) for path in listed(self.root))
            return [path for path, of in found if of is not None and of > attempt]


def _remove_if_empty(folder: AnyPath) -> None:
    # Object stores have no folders: there it is gone with its files.
    if folder.renames:
        # Not empty: other regions of the attempt are still staged. Gone: another sweep did it.
        with suppress(FileNotFoundError, NotADirectoryError):
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
