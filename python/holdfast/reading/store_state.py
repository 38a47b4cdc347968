"""The state of one store of an ordinary query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from holdfast._core import CommitId, StateReader, StateScan
from holdfast._options import STORE
from holdfast.files.arrow_paths import ReadPath
from holdfast.queries.folder import PROVIDER, STATE_FILES_FOLDER
from holdfast.queries.leases import held_tag
from holdfast.queries.logs import committed_batches, is_committed, read_commit, read_plan
from holdfast.queries.reader_leases import ReaderLease
from holdfast.queries.state import chosen_batch
from holdfast.queries.store_forms import Operator, StoreForm, operators, read_operator
from holdfast.reading.opened_state import OpenedState
from holdfast.reading.spark_types import WHOLE, arrow_type, built_array, lent_array
from holdfast.reading.state_differences import DifferenceRows, StateChanges, distinct


@dataclass(frozen=True)
class OperatorState:
    """The state of an operator after a batch; `find_operator` finds it."""

    checkpoint: ReadPath
    #: The checkpoint, or the folder that keeps the state of a tag.
    folder: ReadPath
    batch_id: int
    tag: str | None
    operator: int
    description: Operator
    ids: list[tuple[int, int, str]]
    conf: Mapping[str, str]

    @property
    def is_avro(self) -> bool:
        """True if keys and values are in Avro instead of Spark's rows."""
        return self.conf.get(f"{STORE}.encodingFormat", "unsaferow").lower() != "unsaferow"

    @cached_property
    def lease(self) -> ReaderLease | None:
        """The lease of all readers of the operator; None of a tag, which keeps its batch."""
        if self.tag is not None:
            return None
        lease = ReaderLease(self.folder, self.batch_id, self.ids)
        is_committed(self.folder, self.batch_id)
        return lease


def find_operator(
    checkpoint: ReadPath, batch: int | None, operator: int, tag: str | None = None
) -> OperatorState:
    """Find the state of an operator; see `open_state` for errors."""
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
    if operator not in (there := operators(folder)):
        raise ValueError(f"{folder}: operator {operator}: expected one of {there}")
    description = read_operator(folder, operator, number)
    return OperatorState(checkpoint, folder, number, tag, operator, description, ids, plan.conf)


def open_store(of: OperatorState, name: str, *, whole: bool = False) -> StoreState:
    """Open a store, or a state variable, by a name that there is; see `open_state` for errors.

    With `whole`, its columns are the bytes of keys and the bytes of values.
    """
    form = of.description.form(name)
    if whole:
        form = replace(form, keys=[WHOLE], values=[WHOLE], prefix=None, hashed=None)
    keys, values = (
        [(field["name"], *arrow_type(field["name"], field["type"])) for field in fields]
        for fields in (form.keys, form.values)
    )
    if any(set("lpcmv") & set(code) for _, _, code in keys) or "__COLLATIONS" in str(form.keys):
        # They have another hash, or other bytes than Arrow.
        form = replace(form, hashed=None)
    lease = of.lease
    reader = StateReader(
        of.checkpoint / STATE_FILES_FOLDER,
        str(of.operator),
        form.store,
        [(partition, id) for operator, partition, id in of.ids if operator == of.operator],
        keys=[(column, code) for column, _, code in keys],
        values=[(column, code) for column, _, code in values],
        prefix=form.prefix,
        checksums=of.conf.get(f"{STORE}.rowChecksum.enabled") == "true",
        hashed=form.hashed or 0,
        family=form.family,
    )
    fields = [pa.field(column, kind) for column, kind, _ in [*keys, *values]]
    where = {"operator": of.operator, "store": name}
    follows = not of.conf.get(f"{STORE}.holdfast.move", "").startswith("rollback")
    schema = pa.schema([*distinct(fields)])
    return StoreState(of.folder, of.batch_id, where, form, schema, reader, lease, follows)


class StoreState(OpenedState):
    """The state of one store in all partitions; see `OpenedState`."""

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
        super().__init__(folder, batch_id, schema, len(form.keys))
        self._prefix = form.prefix or 0
        self._where = where
        self._form = form
        self._reader: StateReader | None = reader
        self._lease = lease
        # False if the batch before is not the one that it continues.
        self._follows = follows

    @property
    def value_fields(self) -> list[Any]:
        """Columns of the value by the names that Spark has for them, of which some may be equal."""
        columns = [*self.schema][len(self.key_names) :]
        named = zip(columns, self._form.values, strict=True)
        return [column.with_name(field["name"]) for column, field in named]

    def diff(self, other: OpenedState) -> pa.RecordBatchReader:
        """See `OpenedState`."""
        if not isinstance(other, StoreState):
            raise other._unsupported("compared")
        return self._differences(other, before=True)

    def watch(
        self, *, poll_s: float = 1.0, until: Callable[[], bool] | None = None
    ) -> Iterator[StateChanges]:
        """See `OpenedState`."""
        self._require_open()
        if self._lease is None:
            # Batches after that of a tag may be gone.
            raise self._unsupported("watched")
        state = self
        while not self._is_closed:
            number = state.batch_id + 1
            if is_committed(self._folder, number):
                of = find_operator(self._folder, number, self._where["operator"])
                after = open_store(of, self._where["store"])
                yield StateChanges(number, state._differences(after, before=False).read_all())
                state = after
            elif until is not None and until():
                return
            else:
                time.sleep(poll_s)

    def close(self) -> None:
        """See `OpenedState`."""
        super().close()
        self._reader = self._lease = None

    def __len__(self) -> int:
        """Return the number of keys."""
        with self._reading():
            return len(self._opened)

    def _look_up(self, keys: list[Any]) -> pa.Table:
        if self._form.hashed is None:
            raise self._unsupported("looked up by keys")
        rows = len(keys[0]) if keys else 1
        with self._reading():
            found = self._opened.get([lent_array(column) for column in keys], rows)
        values = map(built_array, self.schema.types[len(keys) :], found)
        return pa.Table.from_arrays([*keys, *values], schema=self.schema)

    def _scanned(self, prefix: list[Any] | None) -> Iterator[Any]:
        if prefix is None:
            return self._batches(self._opened.scan(), self._lease)
        with self._reading():
            _, found = self._opened.with_prefix([lent_array(column) for column in prefix])
        return iter([self._batch(found)])

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

    def _differences(self, other: StoreState, *, before: bool) -> pa.RecordBatchReader:
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
