"""Opens state as a table, without Spark and Java."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from holdfast.files.arrow_paths import readable_folder
from holdfast.queries.folder import is_query_checkpoint
from holdfast.queries.store_forms import Operator
from holdfast.reading.avro_state import AvroState
from holdfast.reading.join_state import JOINED, JoinState
from holdfast.reading.opened_state import OpenedState, chosen_name
from holdfast.reading.store_state import find_operator, open_store

if TYPE_CHECKING:
    import pyarrow.fs


def open_state(
    path: str | PathLike[str],
    *,
    batch: int | None = None,
    operator: int | str | None = None,
    store: str | None = None,
    tag: str | None = None,
    filesystem: pyarrow.fs.FileSystem | None = None,
) -> OpenedState:
    """Open the state of a query or a regional pipeline after a batch, to read it as a table.

    Needs neither Spark nor Java. The query may run. It deletes nothing that the reader needs, if
    the reader may write a lease into the checkpoint. Reads aggregations, also over windows and
    sessions, ``dropDuplicates``, limits, ``flatMapGroupsWithState``, ``transformWithState``, and
    joins, of which both sides are one table.

    A regional pipeline may run, too, and takes no notice of the reader. Reads the state of all
    regions in a checkpoint: for a region that did not take part in it, the region's last good
    state. The first column of the key is the ``region``.

    Parameters
    ----------
    path : str or os.PathLike
        The checkpoint folder: a path, or a URI that `pyarrow.fs.FileSystem.from_uri` takes, such as
        ``s3://bucket/checkpoints/orders``. Pipelines need a path on a mounted file system.
    batch : int, optional
        The batch, by default the newest in the commit log; of a pipeline, the id of a checkpoint.
    operator : int or str, optional
        Number of the stateful operator of a query, as in the folder ``state``, by default 0. Name
        of the operator of a pipeline, by default the only one with state.
    store : str, optional
        Name of the store, the state variable or the state, for operators with several. The default
        of a join is "join", the rows of both sides: its keys, `side`, and a struct for each side.
    tag : str, optional
        Name of a tag of a query, instead of a batch.
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
        names those that there are. If no file system has the scheme of the URI. If a `tag` of a
        pipeline is given.
    NotImplementedError
        If another provider has the state, or it has a type or a form that cannot be read. If a
        pipeline's state is not in one form in all regions, or not on a mounted file system.
    ImportError
        If the state is in Avro, and fastavro is not installed.
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
        from holdfast.reading.pipeline_state import open_pipeline

        return open_pipeline(folder, batch, operator, store, tag)
    if isinstance(operator, str):
        raise ValueError(f"{folder}: operator {operator!r}: operators of queries have numbers")
    found = find_operator(folder, batch, operator or 0, tag)
    name = _chosen(found.description, store)
    if found.is_avro:
        return AvroState(found, name)
    sides = found.description.sides
    if sides and name == JOINED:
        opened = {side: open_store(found, one) for side, one in sides.items()}
        return JoinState(found.folder, found.batch_id, opened)
    return open_store(found, name)


def _chosen(operator: Operator, store: str | None) -> str:
    names = [JOINED, *operator.names] if operator.sides else operator.names
    # The names of timers begin with a dollar.
    chosen = [name for name in names if not name.startswith("$")]
    if store is None and (len(chosen) == 1 or operator.sides):
        return chosen[0]
    return chosen_name(f"{operator.folder}, {operator.name}: store", store, names)
