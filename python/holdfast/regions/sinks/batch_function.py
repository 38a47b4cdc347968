"""A sink that hands the output of every checkpoint to a function on the driver."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from holdfast._core import Staged
from holdfast.files.paths import AnyPath, listed
from holdfast.regions.base.callbacks import called
from holdfast.regions.sinks.delivered import last_delivered, note_delivered
from holdfast.regions.sinks.layout import published_attempt
from holdfast.regions.sinks.parquet import ParquetSink
from holdfast.regions.sinks.parquet_stage import SUFFIX
from holdfast.regions.sinks.publisher import Publisher


class BatchFunction(Publisher):
    """Calls a function with the rows that a completed checkpoint has published.

    Until the call, the rows are in Parquet files of the checkpoint folder. The function is called
    at least once for a checkpoint with rows. A call is repeated, with the same id and the same
    rows, if the function raised an exception, or the process ended before its return was noted.
    Calls are made one at a time, in the order of ids. `deliver` takes the paths of the files,
    always in the same order, and the id of the checkpoint.
    """

    notes_itself = True

    def __init__(self, folder: AnyPath, deliver: Callable[[Sequence[AnyPath], int], None]) -> None:
        self.staging = ParquetSink(folder)
        self._deliver = deliver

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Call the function with the rows of a checkpoint, unless it was called before."""
        files = list(staged)
        if not files or checkpoint <= last_delivered(self.staging.root):
            return
        self.staging.commit(checkpoint, files)
        targets = dict.fromkeys(file.target for file in files)
        paths = [self.staging.root / target for target in targets]
        self._deliver(paths, checkpoint)
        note_delivered(self.staging.root, checkpoint)
        for path in paths:
            # The sweep removes a remaining file, or says why it cannot.
            with suppress(OSError):
                path.unlink()

    def sweep(self, before_attempt: int) -> None:
        """Remove staged files of earlier attempts, and delivered files that a crash left."""
        self.staging.sweep(before_attempt)
        delivered = last_delivered(self.staging.root)
        for path in listed(self.staging.root):
            attempt = published_attempt(path.name, SUFFIX)
            if attempt is not None and attempt <= delivered:
                path.unlink()

    def take_over(self, folder: AnyPath, checkpoint: int, staged: Iterable[Staged]) -> None:
        """Call the function with the output of another pipeline, unless its own was called."""
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "expected a folder, found a symbolic link", str(folder))
        self.of(folder).commit(checkpoint, staged)

    def of(self, folder: AnyPath) -> BatchFunction:
        """Return the sink with the same function for the folder of another pipeline."""
        return BatchFunction(folder, self._deliver)


def spark_delivery(spark: Any, function: Callable[[Any, Any], None]) -> Callable[..., None]:
    """Hand files to ``function(DataFrame, checkpoint)``."""

    def deliver(paths: Sequence[AnyPath], checkpoint: int) -> None:
        rows = spark.read.parquet(*(path.spark_name for path in paths))
        called(function, rows, checkpoint)

    return deliver


def local_delivery(function: Callable[[Any, Any], None]) -> Callable[..., None]:
    """Hand files to ``function(pyarrow.Table, checkpoint)``."""

    def deliver(paths: Sequence[AnyPath], checkpoint: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.concat_tables(pq.read_table(path) for path in paths)
        called(function, rows, checkpoint)

    return deliver
