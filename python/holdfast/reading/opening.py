"""Opens state as a table, without Spark and Java."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from holdfast.files.arrow_paths import readable_folder
from holdfast.queries.folder import is_query_checkpoint
from holdfast.reading.opened_state import OpenedState
from holdfast.reading.store_state import open_store

if TYPE_CHECKING:
    import pyarrow.fs


def open_state(
    path: str | PathLike[str],
    *,
    batch: int | None = None,
    operator: int = 0,
    store: str | None = None,
    tag: str | None = None,
    filesystem: pyarrow.fs.FileSystem | None = None,
) -> OpenedState:
    """Open the state of a query after one of its batches, to read it as a table.

    Needs neither Spark nor Java. The query may run. It deletes nothing that the reader needs, if
    the reader may write a lease into the checkpoint. Reads aggregations, also over windows and
    sessions, ``dropDuplicates``, limits, ``flatMapGroupsWithState``, ``transformWithState``, and
    the stores of joins.

    Parameters
    ----------
    path : str or os.PathLike
        The checkpoint folder: a path, or a URI that `pyarrow.fs.FileSystem.from_uri` takes, such as
        ``s3://bucket/checkpoints/orders``.
    batch : int, optional
        The batch, by default the newest in the commit log.
    operator : int, default 0
        Number of the stateful operator, as in the folder ``state``.
    store : str, optional
        Name of the store or the state variable, for operators with several.
    tag : str, optional
        Name of a tag, instead of a batch.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system that has the path, such as a `pyarrow.fs.S3FileSystem`.

    Returns
    -------
    OpenedState
        Close it, or use it in a ``with`` statement.

    Raises
    ------
    FileNotFoundError
        If there is no such checkpoint or tag, or the batch is not retained.
    ValueError
        If both `batch` and `tag` are given. If there is no such operator or store: the message
        names those that there are. If no file system has the scheme of the URI.
    NotImplementedError
        If another provider has the state, or it has a type or a form that cannot be read.
    CorruptSegmentError, NewerFormatError
        If a file is damaged, or a newer version of Holdfast wrote it.

    Examples
    --------
    >>> with holdfast.open_state("checkpoints/orders") as state:  # doctest: +SKIP
    ...     state.get({"user": ["ada", "bo"]})
    ...     duckdb.sql("select country, sum(total) from state group by all")
    """
    folder = readable_folder(path, filesystem)
    if not is_query_checkpoint(folder):
        raise FileNotFoundError(f"{folder}: expected the checkpoint folder of a streaming query")
    return open_store(folder, batch, operator, store, tag)
