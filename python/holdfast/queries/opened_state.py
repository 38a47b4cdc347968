"""The state of an operator of an ordinary query as a table, without Spark and Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from holdfast._core import CommitId, StateReader, StateScan
from holdfast._exact import exact_array
from holdfast._options import STORE
from holdfast.files.arrow_paths import ReadPath, readable_folder
from holdfast.queries.folder import PROVIDER, STATE_FILES_FOLDER, is_query_checkpoint
from holdfast.queries.leases import held_tag
from holdfast.queries.logs import committed_batches, is_committed, read_commit, read_plan
from holdfast.queries.reader_leases import ReaderLease
from holdfast.queries.spark_types import arrow_type, built_array, lent_array
from holdfast.queries.state import chosen_batch
from holdfast.queries.state_differences import DifferenceRows, StateChanges, distinct
from holdfast.queries.store_forms import Operator, StoreForm, operators, read_operator

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
    return _open(folder, batch, operator, store, tag)


def _open(
    checkpoint: ReadPath,
    batch: int | None,
    operator: int,
    store: str | None,
    tag: str | None = None,
) -> OpenedState:
    if batch is not None and tag is not None:
        raise ValueError("expected a batch or a tag, found both")
    if tag is not None:
        folder, number = held_tag(checkpoint, tag)
    else:
        folder, number = checkpoint, chosen_batch(checkpoint, batch)
    plan = read_plan(folder, number)
    ids = read_commit(folder, number)
    # A query that moved to Holdfast has ids before the next plan.
    is_own = any(CommitId.is_holdfasts(id) for _, _, id in ids)
    if not is_own and plan.provider not in (PROVIDER, None):
        raise NotImplementedError(f"{folder}: expected state of Holdfast, found {plan.provider}")
    if plan.conf.get(f"{STORE}.encodingFormat", "unsaferow").lower() != "unsaferow":
        raise NotImplementedError(f"{folder}: state in Avro cannot be read without Spark yet")
    if operator not in (there := operators(folder)):
        raise ValueError(f"{folder}: operator {operator}: expected one of {there}")
    description = read_operator(folder, operator, number)
    name = _chosen(description, store)
    form = description.form(name)
    keys, values = (
        [(field["name"], *arrow_type(field["name"], field["type"])) for field in fields]
        for fields in (form.keys, form.values)
    )
    if any(set("lpcmv") & set(code) for _, _, code in keys) or "__COLLATIONS" in str(form.keys):
        # They have another hash, or other bytes than Arrow.
        form = replace(form, hashed=None)
    lease = None
    if tag is None:
        lease = ReaderLease(folder, number, ids)
        is_committed(folder, number)
    reader = StateReader(
        checkpoint / STATE_FILES_FOLDER,
        str(operator),
        form.store,
        [(partition, id) for of, partition, id in ids if of == operator],
        keys=[(column, code) for column, _, code in keys],
        values=[(column, code) for column, _, code in values],
        prefix=form.prefix,
        checksums=plan.conf.get(f"{STORE}.rowChecksum.enabled") == "true",
        hashed=form.hashed or 0,
        family=form.family,
    )
    fields = [pa.field(column, kind) for column, kind, _ in [*keys, *values]]
    where = {"operator": operator, "store": name}
    follows = not plan.conf.get(f"{STORE}.holdfast.move", "").startswith("rollback")
    schema = pa.schema([*distinct(fields)])
    return OpenedState(folder, number, where, form, schema, reader, lease, follows)


def _chosen(operator: Operator, store: str | None) -> str:
    names = operator.names
    # The names of timers begin with a dollar.
    chosen = [name for name in names if not name.startswith("$")]
    if store is None and len(chosen) == 1:
        return chosen[0]
    if store in names:
        return store
    raise ValueError(
        f"{operator.folder}, {operator.name}: store {store!r}: expected one of {names}"
    )


class OpenedState:
    """The state of one store in all partitions, after one batch. `open_state` opens it.

    DuckDB, Polars and DataFusion take it like a table of Arrow. Several threads may read it.

    Attributes
    ----------
    batch_id : int
        The batch whose state it is. Pending rows of parked partitions are not in it.
    schema : pyarrow.Schema
        Columns of the key, then of the value. If a name is taken, the next column is ``name_2``.
    key_names : list of str
        Names of the columns of the key.

    Raises
    ------
    FileNotFoundError
        While it is read, if the query has cleaned up the batch meanwhile.
    CorruptSegmentError, OSError
        While it is read, if a segment is damaged, or storage failed.
    NotImplementedError
        While it is read, if a text is not UTF-8.
    """

    def __init__(
        self,
        folder: ReadPath,
        batch_id: int,
        where: Mapping[str, Any],
        form: StoreForm,
        schema: Any,
        reader: StateReader,
        lease: ReaderLease | None,
        follows: bool,
    ) -> None:
        self.batch_id = batch_id
        self.schema = schema
        self.key_names: list[str] = schema.names[: len(form.keys)]
        self._folder = folder
        self._where = where
        self._form = form
        self._reader: StateReader | None = reader
        self._lease = lease
        # False if the batch before is not the one that it continues.
        self._follows = follows

    def get(self, keys: Mapping[str, Any] | pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the rows of keys, in the order of the keys.

        Parameters
        ----------
        keys : mapping, pyarrow.Table or pyarrow.RecordBatch
            Values of each column of the key, all of the same length. Nulls are values, too.

        Returns
        -------
        pyarrow.Table
            A row for each key, with the columns of `schema`. Columns of the value are null for a
            key that is not there.

        Raises
        ------
        ValueError
            If the names are not those of the columns of the key, or the lengths differ.
        NotImplementedError
            If Holdfast does not know in which partition a key is.
        """
        if self._form.hashed is None:
            raise NotImplementedError(
                f"{self._folder}: keys of this store cannot be looked up: use `scan` and filter"
            )
        columns = self._given(keys, self.key_names)
        rows = len(columns[0]) if columns else 1
        with self._reading():
            found = self._opened.get([lent_array(column) for column in columns], rows)
        values = map(built_array, self.schema.types[len(columns) :], found)
        return pa.Table.from_arrays([*columns, *values], schema=self.schema)

    def scan(self, prefix: Mapping[str, Any] | None = None) -> pa.RecordBatchReader:
        """Return all rows in batches, or those whose first columns of the key have given values.

        A batch has about 4 MiB. By `prefix` come sessions, by the columns that they group by, and
        entries of maps and timers, by their key, each with a single value. Other stores raise a
        ValueError.
        """
        if prefix is None:
            batches = self._batches(self._opened.scan(), self._lease)
        else:
            names = self.key_names[: self._form.prefix or 0]
            if not names:
                raise ValueError(f"{self._folder}: this store cannot be scanned by a prefix")
            columns = self._given({name: [value] for name, value in prefix.items()}, names)
            with self._reading():
                _, found = self._opened.with_prefix([lent_array(column) for column in columns])
            batches = iter([self._batch(found)])
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def to_arrow(self) -> pa.Table:
        """Return all rows."""
        return self.scan().read_all()

    def diff(self, other: OpenedState) -> pa.RecordBatchReader:
        """Return the keys whose values in another state differ from those in this one, in batches.

        Reads the segments that only one of the two states has, and old values block by block. So
        the cost follows the changes, unless a merge rewrote the base image between the two.

        Parameters
        ----------
        other : OpenedState
            The state of the same store after another batch, mostly a later one. It may be in
            another checkpoint.

        Returns
        -------
        pyarrow.RecordBatchReader
            The columns of the key; `change`, which is "added", "removed" or "changed"; and the
            structs `before` and `after` of the columns of the value, null where the key is not
            there. Lists have a list of such structs. Ordered by partition and key.

        Raises
        ------
        ValueError
            If operator, store or columns differ. The message has both.
        NotImplementedError
            If the numbers of partitions differ, or a state variable was removed and made anew.
        """
        return self._differences(other, before=True)

    def watch(
        self, *, poll_s: float = 1.0, until: Callable[[], bool] | None = None
    ) -> Iterator[StateChanges]:
        """Yield the changes of each later batch, each batch once, as soon as it is committed.

        Reads the changes that each batch wrote, and no old values. The query may end, or be killed,
        and start again meanwhile. Leave the loop to end, or close the state.

        Parameters
        ----------
        poll_s : float, default 1.0
            Seconds from one look at the commit log to the next.
        until : callable, optional
            Asked before each wait, so after all batches so far. The watch ends once it returns
            true, such as the method ``is_set`` of a `threading.Event`.

        Yields
        ------
        StateChanges
            The batch and its changes, without rows if there are none.

        Raises
        ------
        FileNotFoundError
            If the query cleaned up a batch before it was read. The message names the batches.
        NotImplementedError, ValueError
            The errors of `diff`, for a batch and the one before.
        """
        self._opened  # noqa: B018
        state = self
        while self._reader is not None:
            number = state.batch_id + 1
            if is_committed(self._folder, number):
                after = _open(self._folder, number, **self._where)
                yield StateChanges(number, state._differences(after, before=False).read_all())
                state = after
            elif until is not None and until():
                return
            else:
                time.sleep(poll_s)

    def close(self) -> None:
        """Close the files. Scans that have begun go on."""
        self._reader = self._lease = None

    def __len__(self) -> int:
        """Return the number of keys."""
        with self._reading():
            return len(self._opened)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows as a stream of Arrow's C interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _batches(self, scan: StateScan, lease: ReaderLease | None) -> Iterator[Any]:
        # A scan may outlive this object, and keeps the lease by its argument.
        while True:
            with self._reading():
                rows, columns = scan.read()
            if not rows:
                return
            yield self._batch(columns)

    def _batch(self, columns: Sequence[Any]) -> Any:
        arrays = map(built_array, self.schema.types, columns)
        return pa.RecordBatch.from_arrays(list(arrays), schema=self.schema)

    def _given(self, keys: Any, names: Sequence[str]) -> list[Any]:
        given = list(keys) if isinstance(keys, Mapping) else keys.schema.names
        if sorted(given) != sorted(names):
            raise ValueError(f"columns of the key: expected {[*names]}, found {given}")
        columns = [exact_array(keys[name], self.schema.field(name).type) for name in names]
        if len({*map(len, columns)}) > 1:
            raise ValueError(f"columns of the key have {[*map(len, columns)]} values")
        return columns

    def _differences(self, other: OpenedState, *, before: bool) -> pa.RecordBatchReader:
        """Compare with another state; without `before`, with the state after the next batch."""
        mine, others = (
            f"{state._where} with {[f'{one.name} {one.type}' for one in state.schema]}"
            for state in (self, other)
        )
        if mine != others:
            raise ValueError(f"expected two states of one store, found {mine}, and {others}")
        try:
            scan = self._opened.differences(other._opened, not before and other._follows)
        except NotImplementedError as error:
            said = f"{self._folder}, batches {self.batch_id} and {other.batch_id}: {error}"
            raise NotImplementedError(said) from None
        is_list = self._form.family is not None and self._form.family[1]
        rows = DifferenceRows(self.schema, len(self.key_names), is_list=is_list, before=before)

        def batches() -> Iterator[Any]:
            while True:
                with self._reading(), other._reading():
                    count, keys, sides = scan.read()
                if not count:
                    return
                yield rows.batch(keys, sides)

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    @property
    def _opened(self) -> StateReader:
        if self._reader is None:
            raise ValueError("the state is closed")
        return self._reader

    @contextmanager
    def _reading(self) -> Iterator[None]:
        if self._lease is not None and self._lease.renew():
            is_committed(self._folder, self.batch_id)
        try:
            yield
        except FileNotFoundError as error:
            if self.batch_id in committed_batches(self._folder):
                raise
            raise FileNotFoundError(
                f"{self._folder}: the query no longer retains batch {self.batch_id}: open a newer "
                f"one ({error})"
            ) from None
