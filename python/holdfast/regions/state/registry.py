"""State handles: an operator declares them in `open`, and every checkpoint contains them.

State is a data type, a shape and bytes, readable without the program that wrote it: nothing is
pickled (R71).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, TypeVar

import numpy.typing as npt

from holdfast.regions.base.saved import (
    LeaseOf,
    SavedState,
    StateChangedError,
    StateError,
    StateKind,
)
from holdfast.regions.state.bindings import Bindings
from holdfast.regions.state.kinds.array import ArrayKind
from holdfast.regions.state.kinds.kind import (
    ADVICE,
    FrozenState,
    Kind,
    Scope,
    form_of,
    undeclared,
)
from holdfast.regions.state.kinds.list import ListKind, ListState, UnionKind
from holdfast.regions.state.kinds.map import MapKind, MapState
from holdfast.regions.state.kinds.restoring import Evolve, in_form
from holdfast.regions.state.kinds.table import TableKind, TimersKind
from holdfast.regions.state.kinds.value import BroadcastKind, ExpiringKind, ValueKind, ValueState
from holdfast.regions.state.tables.columns import Given
from holdfast.regions.state.tables.table import OpenTable, TableState
from holdfast.regions.state.tables.timers import TimerState
from holdfast.regions.state.tables.times import AttemptTimes

T = TypeVar("T")
K = TypeVar("K", bound=Kind)

#: The methods of `ctx.state` for operators.
_DECLARING: Final = ("array", "broadcast", "list", "map", "table", "timers", "union", "value")


@dataclass(eq=False, repr=False)
class StateRegistry(Scope):
    """The states of one operator instance.

    `saved` are its states in the checkpoint, none for a new region. With `drop_undeclared`,
    undeclared ones are dropped instead of refused. `timers_of` has the declared timers by name.
    """

    saved: InitVar[Iterable[SavedState]] = ()
    drop_undeclared: bool = field(default=False, kw_only=True)

    def __post_init__(self, saved: Iterable[SavedState]) -> None:
        """Hold nothing that is declared yet."""
        self._saved = {state.name: state for state in saved}
        self._states: dict[str, Kind] = {}
        self.timers_of: dict[str, TimerState] = {}

    def __dir__(self) -> list[str]:
        """Return the methods for operators; snapshots are Holdfast's own."""
        return [*_DECLARING, *(name for name in object.__dir__(self) if name.startswith("_"))]

    def array(
        self,
        name: str,
        *,
        shape: int | tuple[int, ...],
        dtype: npt.DTypeLike = "float64",
        fill: float | int | bool = 0,
        exact: bool = False,
        chunk_bytes: int | None = None,
        evolve: Evolve = None,
    ) -> Any:
        """Declare an array.

        Parameters
        ----------
        name : str
            Unique in the operator.
        shape : int or tuple of int
            Its shape. A checkpoint restores into the same shape and data type, see `evolve`.
        dtype : NumPy data type, default float64
            Booleans, integers, floating point, complex; nothing with Python objects in it.
        fill : scalar, default 0
            Content in a new region.
        exact : bool, default False
            Find changes since the last checkpoint by comparison with a copy of the array, byte by
            byte. The copy takes as much memory as the array, on a device twice as much during a
            snapshot. By default digests of chunks are compared, which miss a changed chunk with a
            probability of 2^-127. Arrays of at most `chunk_bytes` are always written whole.
        chunk_bytes : int, default 1 MiB
            A checkpoint writes a chunk of so many bytes if an item in it changed. With changes in
            places far apart, smaller chunks write less. Each chunk costs 16 bytes of memory, and
            each lone changed chunk about 16 bytes in the metadata of later checkpoints. A power of
            two from 512 to 1 MiB; another start may give another one.
        evolve : callable, optional
            Converts the checkpoint's content if that has another shape, data type or kind. Takes a
            NumPy array, a value, a list or a dict. Returns an array of `shape` whose items can be
            cast to `dtype` without leaving their kind (``casting="same_kind"``). The next
            checkpoint has the new content of all regions, or fails. Until then a region may be
            converted more than once, so the function changes nothing else.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            Writable, in C order, of `shape` and `dtype`. Change it in place, as ``self.x += 1``
            does: snapshots are of this very array. ``self.x = self.x + 1`` makes another array,
            and fails the next snapshot.

        Raises
        ------
        StateError
            If the name is taken, the type cannot be kept, or the checkpoint has something else
            under this name and `evolve` does not convert it.
        """
        state = ArrayKind(self, name, shape, dtype, fill, exact=exact, chunk_bytes=chunk_bytes)
        return self._declare(state, evolve).handle

    def value(
        self,
        name: str,
        default: T | None = None,
        *,
        ttl: timedelta | str | None = None,
        ttl_by: Literal["watermark"] | None = None,
        evolve: Evolve = None,
    ) -> ValueState[T | None]:
        """Declare one small value, see `ValueState`.

        A copy of `default` is its content in a new region. `evolve` returns its content if the
        checkpoint has another kind of state there, see `array`.

        With `ttl` it is a copy of `default` again when this time has passed since the last attempt
        that changed it: by the driver's clock, or with `ttl_by="watermark"` by the region's
        watermark, see `RegionalPipeline.with_watermark`. A start may give another `ttl` or
        `ttl_by`, or a first `ttl`: its time counts from then on.
        """
        if ttl is None and ttl_by is None:
            return self._declare(ValueKind(self, name, default), evolve).handle
        state = ExpiringKind(self, name, default, ttl, ttl_by)
        return self._declare(state, evolve).handle

    def map(self, name: str, *, evolve: Evolve = None) -> MapState[Any]:
        """Declare a dict by the values of `route_by`, see `MapState`.

        With another parallelism, its entries follow the rows of their keys. `evolve` returns a
        dict if the checkpoint has another kind of state there, see `array`.
        """
        return self._declare(MapKind(self, name), evolve).handle

    def list(self, name: str, *, evolve: Evolve = None) -> ListState[Any]:
        """Declare a list that is split evenly over another number of instances.

        Its items belong to no key: an item may go to an instance without the rows of its key. Use
        a `map` for state by key. `evolve` returns the items if the checkpoint has another kind of
        state there, see `array`.
        """
        return self._declare(ListKind(self, name), evolve).handle

    def table(
        self,
        name: str,
        *,
        key: Given,
        value: Given,
        ttl: timedelta | str | None = None,
        ttl_by: str | None = None,
    ) -> TableState:
        """Declare a table by key, which may be much larger than memory, see `TableState`.

        A checkpoint writes changes since the last one.

        Parameters
        ----------
        name : str
            Unique in the operator.
        key, value : pyarrow.DataType, pyarrow.Schema or dict of str to pyarrow.DataType
            Columns of the key and of the value. Keys are not null.
        ttl : datetime.timedelta or str, optional
            The time that a row lives after it was set; a text such as ``"7 days"``. An expired row
            is not in the table. Its bytes leave the disk with later batches of the region. A start
            may give another time, which then counts for all rows. Flink's ``StateTtlConfig``,
            Spark's ``TTLConfig``.
        ttl_by : str, optional
            A timestamp column of the key or value, from which the life of a row counts. The row has
            expired when the watermark has passed this time and `ttl`. So the operator follows
            `RegionalPipeline.with_watermark`. Rows without this time do not expire. By default the
            life of a row counts from the attempt that set it, by the driver's clock.

        Returns
        -------
        TableState
            It can be used from now on.

        Raises
        ------
        StateError
            If the name is taken, a type cannot be kept, or the checkpoint has something else under
            this name. A table without `ttl`, or with another `ttl_by`, is something else.
        """
        table, *_ = map(self._declare, TableKind.declared(self, name, key, value, ttl, ttl_by))
        return table.table

    def timers(
        self, name: str, *, key: Given, time: Literal["event", "processing"] = "event"
    ) -> TimerState:
        """Declare timers by key, kept in a `table`; `Operator.on_timers` receives the due ones.

        Parameters
        ----------
        name : str
            Unique in the operator.
        key : pyarrow.DataType, pyarrow.Schema or dict of str to pyarrow.DataType
            Columns of the key, as in a `table`. None has the name ``time``.
        time : {"event", "processing"}
            Timers in event time follow the watermark, so the operator follows
            `RegionalPipeline.with_watermark`. Timers in processing time are due by the driver's
            time at the beginning of a batch, see `OperatorContext.processing_time`. The first batch
            after that time has them, with or without rows of the region.

        Raises
        ------
        StateError
            In the cases of a `table`, or if the checkpoint has these timers in the other time.
        """
        state = self._declare(TimersKind(self, name, key=key, time=time))
        self.timers_of[name] = state.handle
        return state.handle

    def union(self, name: str, *, evolve: Evolve = None) -> ListState[Any]:
        """Declare a list of which new regions and new instances receive all items.

        A region that no checkpoint knows begins with the items of all regions in the latest one.
        When the operator's parallelism or `route_by` changes, every instance in every region
        receives all items. Otherwise a region continues with its own. A pipeline with such a state
        is never regional, because new regions see items of the others.
        """
        return self._declare(UnionKind(self, name), evolve).handle

    def broadcast(
        self, name: str, default: T | None = None, *, evolve: Evolve = None
    ) -> ValueState[T | None]:
        """Declare a value that is the same in all regions, and copied to new regions and instances.

        `default` is its content in the first regions. The operator keeps it the same everywhere:
        if regions differ, a new region fails with an error that names two of them. A pipeline with
        such a state is never regional, because regions would have to agree on it.
        """
        return self._declare(BroadcastKind(self, name, default), evolve).handle

    @property
    def kinds(self) -> frozenset[StateKind]:
        """Kinds of the declared states."""
        return frozenset(state.kind for state in self._states.values())

    @property
    def event_time(self) -> Sequence[str]:
        """Names of the declared states that follow the watermark."""
        return [name for name, state in self._states.items() if state.follows_watermark]

    def check_restored(self) -> None:
        """Fail if the checkpoint has a state that `open` did not declare: it would be lost."""
        if self._saved and not self.drop_undeclared:
            name, saved = next(iter(self._saved.items()))
            raise StateChangedError(f"{undeclared(self.at(name), form_of(saved))}. {ADVICE}")

    def begin(self, open_table: OpenTable, times: AttemptTimes) -> None:
        """Begin another attempt: open the tables as they were committed."""
        self.open_table, self.times = open_table, times
        for state in self._states.values():
            state.begin()

    def close(self) -> None:
        """Leave the tables, without changes since their commit."""
        for state in self._states.values():
            state.close()
        # The operator may keep this object, which must lead neither to the task nor to itself.
        self.open_table = None
        self._states.clear()
        self.timers_of.clear()

    def bindings(self, operator: object) -> Bindings:
        """Note where an operator keeps the states; to be called when it has opened."""
        return Bindings(operator, self._states, unwatched=(StateRegistry,))

    def freeze(self, lease: LeaseOf) -> Sequence[FrozenState]:
        """Take all states, sorted by name: the operator waits only for this part of a snapshot.

        The result is independent of later changes. `lease` asks which older segments of a state, by
        name, the attempt may refer to; its AttemptEndedError or OSError is raised. Raises a
        StateError if a value has something that cannot be kept, or an array was reshaped.
        """
        taken = [state.take(partial(lease, name)) for name, state in self._states.items()]
        # Last: a commit cannot be repeated within the attempt.
        return sorted((commit() for commit in taken), key=lambda state: state.name)

    def _declare(self, state: K, evolve: Evolve = None) -> K:
        name = state.name
        if not name or len(name.encode()) > 1024:
            raise StateError(f"{state.where}: a name has 1 to 1,024 bytes")
        if name in self._states:
            raise StateError(f"{state.where} is declared twice")
        state.restore(self._take(state, evolve))
        self._states[name] = state
        return state

    def _take(self, state: Kind, evolve: Evolve) -> SavedState | None:
        """Return the state in the checkpoint, in the declared form; None if it has none."""
        return in_form(self._saved.pop(state.name, None), state, evolve)
