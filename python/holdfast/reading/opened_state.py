"""State that is open for reading."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from holdfast._exact import exact_array
from holdfast.files.arrow_paths import ReadPath

if TYPE_CHECKING:
    import pyarrow.dataset

    from holdfast.reading.state_differences import StateChanges


def chosen_name(what: str, asked: str | None, names: Collection[str]) -> str:
    """Return the name that is asked for, by default the only one; ValueError with all of them."""
    if asked is None and len(names) == 1:
        (asked,) = names
    if asked is None or asked not in names:
        raise ValueError(f"{what} {asked!r}: expected one of {[*names]}")
    return asked


class OpenedState:
    """State in all partitions or regions, after one batch. `open_state` opens it.

    DuckDB, Polars and DataFusion take it like a table of Arrow. Several threads may read it.

    Attributes
    ----------
    batch_id : int
        The batch, or the checkpoint, whose state it is. Pending rows are not in it.
    schema : pyarrow.Schema
        Columns of the key, then of the value. If a name is taken, the next column is ``name_2``.
    key_names : list of str
        Names of the columns of the key.

    Raises
    ------
    FileNotFoundError
        While it is read, if the batch has been cleaned up meanwhile.
    CorruptSegmentError, OSError
        While it is read, if a segment is damaged, or storage failed.
    NotImplementedError
        While it is read, if a text is not UTF-8. If this state has no such operation.
    """

    #: Number of the first columns of the key that `scan` takes.
    _prefix = 0

    #: The thing that `batch_id` counts, for messages.
    _unit = "batch"

    def __init__(self, folder: ReadPath, batch_id: int, schema: Any, keys: int) -> None:
        self.batch_id = batch_id
        self.schema = schema
        self.key_names: list[str] = schema.names[:keys]
        self._folder = folder
        self._is_closed = False

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
            If Holdfast does not know in which partition a key is. For pipelines: scan a region.
        """
        return self._look_up(self._given(keys, self.key_names))

    def scan(self, prefix: Mapping[str, Any] | None = None) -> pa.RecordBatchReader:
        """Return all rows in batches, or those whose first columns of the key have given values.

        A batch has about 4 MiB. By `prefix` come sessions, by the columns that they group by,
        entries of maps and timers, by their key, and the regions of pipelines, by ``region``, each
        with a single value. Other state raises a ValueError. A pipeline takes the memory of its
        largest region, and each region has batches of its own.
        """
        self._require_open()
        given = None
        if prefix is not None:
            names = self.key_names[: self._prefix]
            if not names:
                raise ValueError(f"{self._folder}: this state cannot be scanned by a prefix")
            given = self._given({name: [value] for name, value in prefix.items()}, names)
        return pa.RecordBatchReader.from_batches(self.schema, self._scanned(given))

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any
    ) -> pyarrow.dataset.Scanner:
        """Return a scanner of all rows, as PyArrow's protocol of datasets has it.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these columns.
        filter : pyarrow.dataset.Expression, optional
            Only rows for which it is true, such as a range of keys. All rows are read for it.
        **options
            Those of `pyarrow.dataset.Scanner.from_batches`.
        """
        import pyarrow.dataset

        return pyarrow.dataset.Scanner.from_batches(
            self.scan(), columns=columns, filter=filter, **options
        )

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
        raise self._unsupported("compared")

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
        raise self._unsupported("watched")

    def close(self) -> None:
        """Close the files. Scans that have begun go on."""
        self._is_closed = True

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(len(batch) for batch in self.scan())

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

    def _look_up(self, keys: list[Any]) -> pa.Table:
        """Return the rows of keys, given as arrays."""
        raise self._unsupported("looked up by keys")

    def _scanned(self, prefix: list[Any] | None) -> Iterator[Any]:
        """Yield rows in batches. An iterator that began does not need this object."""
        raise NotImplementedError

    def _given(self, keys: Any, names: Sequence[str]) -> list[Any]:
        given = list(keys) if isinstance(keys, Mapping) else keys.schema.names
        if sorted(given) != sorted(names):
            raise ValueError(f"columns of the key: expected {[*names]}, found {given}")
        columns = [exact_array(keys[name], self.schema.field(name).type) for name in names]
        if len({*map(len, columns)}) > 1:
            raise ValueError(f"columns of the key have {[*map(len, columns)]} values")
        return columns

    def _require_open(self) -> None:
        if self._is_closed:
            raise ValueError("the state is closed")

    def _unsupported(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{self._folder}: this state cannot be {what}: use `scan`")
