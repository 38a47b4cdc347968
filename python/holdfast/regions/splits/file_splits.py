"""A source of files for users."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from holdfast._checks import require_duration, require_int, require_one_of
from holdfast.files.paths import local_folder
from holdfast.regions.base.schemas import arrow_schema
from holdfast.regions.splits.enumerator import SplitEnumerator
from holdfast.regions.splits.reader import SplitReader, file_format

#: Column of the rows that Spark moves for the source: one for each region.
REGION_COLUMN: Final = "region"


@dataclass(frozen=True)
class FileSplits:
    """Files of a folder, as a source of a regional pipeline.

    An enumerator on the driver divides files into splits and hands them to free regions; so here
    regions are readers, not properties of rows. Splits of a failed region return, and the next free
    region reads them: their rows are not copied into the checkpoint. A split that made regions fail
    twice is read separately from then on, and the cause of the failure names it.

    A file must be complete when it appears (write it under a name that begins with ``.`` or ``_``
    and rename it). It is known by its name, and read once. A file that changes before it is read is
    read in its last form; one that is removed is dropped with a warning.

    Parameters
    ----------
    folder : str or Path
        Folder of the files, on a file system that driver and executors share; subfolders count.
    schema : pyarrow.Schema, pyspark.sql.types.StructType or str
        Schema of the rows; a str is in Spark's DDL form. Columns that a file lacks are null.
    kind : {"parquet", "arrow", "csv", "json"}, default "parquet"
        Format of the files. Only Parquet files are divided.
    regions : int, default 8
        Number of regions, and of tasks in a batch.
    split_bytes : int, default 64 MiB
        Size up to which row groups of a file are put together.
    splits_per_region : int, default 4
        Bound on the splits of a region in one batch: the rows of a batch must fit into the memory
        of its task.
    max_file_age : timedelta, default 7 days
        A file that is older than the newest known one by more than this is not read, as with
        ``maxFileAge`` of Spark's own file source; the log names it. Times in the future count as
        the present.
    on_bad_split : {"fail", "skip"}, default "fail"
        Treatment of a split that cannot be read: its file is damaged, of another format, not
        permitted or does not fit the schema. "fail": regions fail with it until
        ``max_region_staleness`` ends the pipeline. "skip": the checkpoint completes without any row
        of it, and lists it, see ``holdfast show``. It is tried again when its file changes (touch
        it), and all are tried again by a start with "fail".

    Raises
    ------
    ValueError
        If a value is not allowed; the message names it.
    FileNotFoundError
        If there is no such folder.

    Examples
    --------
    >>> source = holdfast.FileSplits("landing", schema="path string, image binary", regions=64)
    >>> query = (
    ...     holdfast.regional(source)
    ...     .apply(Classify(), schema="path string, label int")
    ...     .write_parquet("labels")
    ...     .start(checkpoint="checkpoint", trigger={"availableNow": True})
    ... )
    """

    folder: str | Path
    schema: Any
    kind: str = field(default="parquet", kw_only=True)
    regions: int = field(default=8, kw_only=True)
    split_bytes: int = field(default=64 * 1024 * 1024, kw_only=True)
    splits_per_region: int = field(default=4, kw_only=True)
    max_file_age: timedelta = field(default=timedelta(days=7), kw_only=True)
    on_bad_split: Literal["fail", "skip"] = field(default="fail", kw_only=True)

    def __post_init__(self) -> None:
        file_format(self.kind)
        for option in ("regions", "split_bytes", "splits_per_region"):
            found = require_int(option, getattr(self, option), at_least=1)
            object.__setattr__(self, option, found)
        require_duration("max_file_age", self.max_file_age, zero=True)
        require_one_of("on_bad_split", self.on_bad_split, ("fail", "skip"))
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path} to read files from")

    @property
    def path(self) -> Path:
        """The folder."""
        return local_folder(self.folder)

    @property
    def region_names(self) -> tuple[str, ...]:
        """Names of the regions."""
        return tuple(f"r{number}" for number in range(self.regions))

    def enumerator(self) -> SplitEnumerator:
        """Return the coordinator of the source."""
        return SplitEnumerator(self)

    def reader(self) -> SplitReader:
        """Return the reader of splits for tasks."""
        skips = self.on_bad_split == "skip"
        return SplitReader(self.path, self.kind, arrow_schema(self.schema), skips)
