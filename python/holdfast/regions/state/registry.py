"""State handles: an operator declares them in `open`, and every checkpoint contains them.

State is a data type, a shape and bytes, readable without the program that wrote it: nothing is
pickled (R71).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast._checks import require_int
from holdfast.regions.base.problem import message_of
from holdfast.regions.base.saved import (
    LeaseOf,
    SavedState,
    StateChangedError,
    StateError,
    StateKind,
)
from holdfast.regions.state.arrays.chunks import CHUNK_BYTES, Layout
from holdfast.regions.state.arrays.device import Device
from holdfast.regions.state.arrays.device_arrays import DeviceArray
from holdfast.regions.state.arrays.exact_arrays import ExactDeviceArray
from holdfast.regions.state.arrays.host import (
    ArrayState,
    Declared,
    FrozenArray,
    HostArray,
    SmallArray,
)
from holdfast.regions.state.bindings import Bindings
from holdfast.regions.state.form import ADVICE, StateForm, changed, undeclared
from holdfast.regions.state.handles import ExpiringValue, ListState, ValueState
from holdfast.regions.state.keyed_map import MAP, MapState, decode_map, encode_map
from holdfast.regions.state.large import DOCUMENT_BYTES, LargeList, LargeMap, LargeState, document
from holdfast.regions.state.routing import instances_of
from holdfast.regions.state.tables.columns import Columns, Given
from holdfast.regions.state.tables.expiring import (
    INDEX_VALUE,
    ExpiringTable,
    TimeToLive,
    index_key,
    life_us,
)
from holdfast.regions.state.tables.stored_table import FrozenTable, saved_commit, saved_of
from holdfast.regions.state.tables.table import OpenTable, TableState
from holdfast.regions.state.tables.timers import VALUE, TimerState, TimerTable, WakingTable, key_of
from holdfast.regions.state.tables.times import AttemptTimes
from holdfast.regions.state.values import decode_value, encode_value, plain, rich

T = TypeVar("T")

FrozenState: TypeAlias = SavedState | FrozenArray | FrozenTable
"""Content of a state at one moment: all of it, a large array yet to be written, or a table."""

AnyHandle: TypeAlias = "ValueState[Any] | ListState[Any] | MapState[Any]"
H = TypeVar("H", "ValueState[Any]", "ListState[Any]", "MapState[Any]")

Evolve: TypeAlias = "Callable[[Any], Any] | None"
"""Converts content that a checkpoint has in another form; None: such content is refused."""

FrozenStates = list[FrozenState]  # `list` is a method of the registry


#: The methods of `ctx.state` for operators.
_DECLARING: Final = ("array", "broadcast", "list", "map", "table", "timers", "union", "value")


class StateRegistry:
    """The states of one operator instance.

    Parameters
    ----------
    xp : module
        Array module, NumPy or CuPy.
    saved : iterable of SavedState
        The instance's states in the checkpoint; none for a new region.
    owner : str
        Operator and region, for messages.
    layout : Layout
        How large arrays are cut.
    instance, parallelism : int
        Number of the instance in its region, and how many instances the operator has there.
    route_by : sequence of str
        Columns by which rows come to an instance.
    drop_undeclared : bool, default False
        Drop states of the checkpoint that are not declared, instead of refusing them.
    open_table : callable, optional
        Opens tables for the attempt at hand. Without it they can be declared and not used.
    times : AttemptTimes, optional
        Times of the attempt at hand.

    Attributes
    ----------
    times : AttemptTimes
        Times as the operator has been told them.
    event_time : list of str
        Declared states that follow the watermark.
    """

    def __init__(
        self,
        xp: Any,
        saved: Iterable[SavedState] = (),
        *,
        owner: str = "",
        layout: Layout = Layout(),  # noqa: B008  # immutable
        instance: int = 0,
        parallelism: int = 1,
        route_by: Sequence[str] = (),
        drop_undeclared: bool = False,
        open_table: OpenTable | None = None,
        times: AttemptTimes = AttemptTimes.at(0),  # noqa: B008  # immutable
    ) -> None:
        self._xp = xp
        self._open_table = open_table
        self._tables: dict[str, TableState] = {}
        # The maps and lists that checkpoints have as tables.
        self._large: dict[str, LargeState] = {}
        self.timers_of: dict[str, TimerState] = {}
        self.times = times
        self.event_time: list[str] = []
        self._layout = layout
        self._device = _device_of(xp)
        self._owner = owner
        self._instance = instance
        self._parallelism = parallelism
        self._route_by = route_by
        self._drop_undeclared = drop_undeclared
        self._saved = {state.name: state for state in saved}
        self._arrays: dict[str, ArrayState] = {}
        self._others: dict[str, tuple[StateKind, AnyHandle]] = {}
        # The operator has these objects: arrays, and handles.
        self._given: dict[str, object] = {}

    def __dir__(self) -> list[str]:
        """Return the methods for operators; snapshots are Holdfast's own."""
        return [*_DECLARING, *(name for name in object.__dir__(self) if name.startswith("_"))]

    # --- declaring ------------------------------------------------------------------------------

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
            each that changed alone about 16 bytes in the metadata of later checkpoints. A power of
            two from 512 to 1 MiB; another start may give another one.
        evolve : callable, optional
            Converts the checkpoint's content if that has another shape, data type or kind. Takes a
            NumPy array, a value, a list or a dict. Returns an array of `shape` whose items can be
            cast to `dtype` without leaving their kind (``casting="same_kind"``). The next
            checkpoint has the new content of all regions, or there is none. Until then a region
            may be converted more than once, so the function changes nothing else.

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
        wanted = np.dtype(dtype)
        if wanted.kind not in "biufc":
            raise StateError(
                f"{self._at(name)}: an array of {wanted} cannot be kept; use booleans, integers, "
                "floating point or complex numbers"
            )
        if wanted.kind in "biu" and not _holds(wanted, np.asarray(fill)):
            raise StateError(
                f"{self._at(name)}: fill={fill!r} is not allowed: no {wanted} is {fill}"
            )
        dims = _dimensions(shape, at=self._at(name))
        layout = self._layout if chunk_bytes is None else _cut(chunk_bytes, at=self._at(name))
        self._claim(name)
        saved = self._take(name, StateForm("array", wanted.str, dims), evolve)
        declared = Declared(name, wanted, dims, self._at(name))
        array = self._restored(declared, saved, fill)
        self._arrays[name] = self._tracked(declared, array, saved, layout, exact=exact)
        self._given[name] = array
        return array

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
        that changed it: by the driver's clock, or with `ttl_by="watermark"` by the watermark of the
        region, see `RegionalPipeline.with_watermark`. A start may give another time, or give one to
        a value that had none, or another `ttl_by`: its time counts from then on.
        """
        at = self._at(name)
        if ttl_by not in (None, "watermark"):
            raise StateError(f"{at}: ttl_by={ttl_by!r} is not allowed: expected 'watermark'")
        if ttl is None:
            if ttl_by is not None:
                raise StateError(f"{at}: ttl_by={ttl_by!r} needs a ttl")
            return self._value(name, "value", default, evolve)
        self._claim(name)
        if ttl_by is not None:
            self.event_time.append(name)
        state = ExpiringValue(
            default,
            ttl_us=life_us(ttl, at),
            by_watermark=ttl_by is not None,
            times=lambda: self.times,
        )
        if (saved := self._take(name, StateForm("value"), evolve)) is not None:
            state.restore(saved, decode_value(saved))
        return self._added(name, "value", state)

    def map(self, name: str, *, evolve: Evolve = None) -> MapState[Any]:
        """Declare a dict by the values of `route_by`, see `MapState`.

        With another parallelism, its entries go where the rows of their keys go. `evolve` returns
        a dict if the checkpoint has another kind of state there, see `array`.
        """
        self._claim(name)
        saved, large = self._small(name, self._take(name, StateForm("map"), evolve))
        entries = () if saved is None else decode_map(saved.data, rich)
        state = self._new_map(name, entries)
        if isinstance(large, LargeMap):
            large.keep(state._entries)
            state._watch = large
        return self._added(name, "value", state)

    def list(self, name: str, *, evolve: Evolve = None) -> ListState[Any]:
        """Declare a list that is split evenly over another number of instances.

        Its items belong to no key: an item may go to an instance that does not see the rows of its
        key. Use a `map` for state by key. `evolve` returns the items if the checkpoint has another
        kind of state there, see `array`.
        """
        return self._list(name, "list", evolve)

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

        A checkpoint writes what changed since the last one.

        Parameters
        ----------
        name : str
            Unique in the operator.
        key, value : pyarrow.DataType, pyarrow.Schema or dict of str to pyarrow.DataType
            Columns of the key and of the value. Keys are not null.
        ttl : datetime.timedelta or str, optional
            The time that a row lives after it was set; a text such as ``"7 days"``. Rows that have
            expired are not in the table any more. They leave the disk with later batches of the
            region. A start may give another time, which then counts for all rows. Flink's
            ``StateTtlConfig``, Spark's ``TTLConfig``.
        ttl_by : str, optional
            A timestamp column of the key or value, from which the life of a row counts. The row has
            expired when the watermark has passed this time and `ttl`. So the operator stands behind
            `RegionalPipeline.with_watermark`. Rows without such a time do not expire. By default
            the life of a row counts from the attempt in which it was set, by the driver's clock.

        Returns
        -------
        TableState
            It can be used from now on.

        Raises
        ------
        StateError
            If the name is taken, a type cannot be kept, or the checkpoint has something else under
            this name. A table with `ttl` is something else than one without it, or with another
            `ttl_by`.
        """
        at = self._at(name)
        self._claim(name)
        keys = Columns.of(key, name="key", where=at)
        values = Columns.of(value, name="value", where=at)
        if twice := set(keys.schema.names) & set(values.schema.names):
            raise StateError(f"{at}: column {min(twice)!r} is both in the key and in the value")
        if ttl is None:
            if ttl_by is not None:
                raise StateError(f"{at}: ttl_by={ttl_by!r} needs a ttl")
            return self._added_table(name, TableState(name, keys, values))
        life = TimeToLive.of(ttl, ttl_by, keys, values)
        if ttl_by is not None:
            self.event_time.append(name)
        index_name = f"{name}.expiry"
        self._claim(index_name)
        columns = {"key": index_key(keys), "value": INDEX_VALUE}
        index = TableState(
            index_name, *(Columns.of(given, name=n, where=at) for n, given in columns.items())
        )
        table = ExpiringTable(name, keys, values, ttl=life, index=index, times=lambda: self.times)
        self._added_table(name, table)
        self._added_table(index_name, index)
        return table

    def timers(
        self, name: str, *, key: Given, time: Literal["event", "processing"] = "event"
    ) -> TimerState:
        """Declare timers by key, which `Operator.on_timers` gets when they are due.

        Timers are kept in a `table`.

        Parameters
        ----------
        name : str
            Unique in the operator.
        key : pyarrow.DataType, pyarrow.Schema or dict of str to pyarrow.DataType
            Columns of the key, as those of a `table`. None has the name ``time``.
        time : {"event", "processing"}
            Timers in event time follow the watermark, so the operator stands behind
            `RegionalPipeline.with_watermark`. Timers in processing time are due by the driver's
            time at the beginning of a batch, see `OperatorContext.processing_time`. The first batch
            after that time has them, with or without rows of the region.

        Raises
        ------
        StateError
            In the same cases as for a `table`. Timers stay in the time that they have.
        """
        at = self._at(name)
        if time not in ("event", "processing"):
            raise StateError(
                f"{at}: time={time!r} is not allowed: expected 'event' or 'processing'"
            )
        columns = key_of(key, where=at)
        self._claim(name)
        keys = Columns.of(columns, name="key", where=at)
        values = Columns.of(VALUE, name="value", where=at)
        table: TimerTable
        if time == "event":
            self.event_time.append(name)
            table = TimerTable(name, keys, values)
        else:
            table = WakingTable(name, keys, values, lambda: self.times)
        self._added_table(name, table)
        timers = TimerState(table, columns.remove(0), time)
        self._given[name] = self.timers_of[name] = timers
        return timers

    def union(self, name: str, *, evolve: Evolve = None) -> ListState[Any]:
        """Declare a list of which new regions and new instances get all items.

        A region that no checkpoint knows begins with the items of all regions in the latest one.
        When the operator's parallelism or `route_by` changes, every instance in every region gets
        all items. Otherwise a region goes on with its own. A pipeline with such a state is never
        regional, because new regions see items of the others.
        """
        return self._list(name, "union", evolve)

    def broadcast(
        self, name: str, default: T | None = None, *, evolve: Evolve = None
    ) -> ValueState[T | None]:
        """Declare a value that is the same in all regions, and copied to new regions and instances.

        `default` is its content in the first regions. The operator keeps it the same everywhere:
        if regions differ, a new region fails with an error that names two of them. A pipeline with
        such a state is never regional, because regions would have to agree on it.
        """
        return self._value(name, "broadcast", default, evolve)

    # --- snapshots ------------------------------------------------------------------------------

    @property
    def kinds(self) -> frozenset[StateKind]:
        """Kinds of the declared states."""
        kinds: set[StateKind] = {kind for kind, _ in self._others.values()}
        if self._arrays:
            kinds.add("array")
        if self._tables:
            kinds.add("table")
        return frozenset(kinds)

    def check_restored(self) -> None:
        """Fail when the checkpoint has a state that `open` did not declare: it would be lost.

        Raises
        ------
        StateChangedError
            Naming it, unless such states are dropped.
        """
        if self._saved and not self._drop_undeclared:
            name, saved = next(iter(self._saved.items()))
            raise StateChangedError(f"{undeclared(self._at(name), StateForm.of(saved))}. {ADVICE}")

    def begin(self, open_table: OpenTable, times: AttemptTimes) -> None:
        """Begin another attempt: open the tables as they were committed."""
        self._open_table = open_table
        self.times = times
        for table in self._tables.values():
            table._begin(open_table)

    def close(self) -> None:
        """Leave the tables, without what changed since their commit."""
        for table in self._tables.values():
            table._close()
        # The operator may keep this object, which must lead neither to the task nor to itself.
        self._open_table = None
        for held in (self._tables, self._large, self.timers_of, self._arrays, self._others):
            held.clear()
        self._given.clear()

    def bindings(self, operator: object) -> Bindings:
        """Note where an operator keeps the states; to be called when it has opened."""
        return Bindings(operator, self._given, unwatched=(StateRegistry,))

    def freeze(self, lease: LeaseOf) -> FrozenStates:
        """Take everything as it is now: the only part of a snapshot the operator waits for.

        Parameters
        ----------
        lease : callable
            Asks which older segments of the state of a name the attempt may refer to.

        Returns
        -------
        list of SavedState, FrozenArray or FrozenTable
            Sorted by name; independent of later changes.

        Raises
        ------
        StateError
            If a value holds something that cannot be kept, or an array was reshaped.
        AttemptEndedError, OSError
            Errors of `lease`.
        """
        frozen: FrozenStates = [
            array.freeze(partial(lease, name)) for name, array in self._arrays.items()
        ]
        for name, (kind, state) in self._others.items():
            if name not in self._large:
                small = self._freeze_other(name, kind, state)
                if small.data.nbytes <= DOCUMENT_BYTES or not self._may_grow(kind, state):
                    frozen.append(small)
                    continue
                self._grown(name, state)
            self._prepare(name, state)
        # Last: a commit cannot be repeated within the attempt.
        if (open_table := self._open_table) is not None:
            frozen.extend(large.write(open_table) for large in self._large.values())
        frozen.extend(table._freeze() for table in self._tables.values())
        return sorted(frozen, key=lambda state: state.name)

    # --- details --------------------------------------------------------------------------------

    def _restored(self, declared: Declared, saved: SavedState | None, fill: Any) -> Any:
        if saved is None:
            array = self._xp.full(declared.shape, fill, dtype=declared.dtype)
            if self._device is not None:
                self._device.view(array)  # waits, since the operator may use another stream
            return array
        content = np.frombuffer(saved.data, declared.dtype).reshape(declared.shape)
        if self._device is not None:
            return self._device.upload(content)
        # The operator changes it in place, so it has to be its own.
        return content.copy() if saved.data.readonly else content

    def _tracked(
        self,
        declared: Declared,
        array: Any,
        saved: SavedState | None,
        layout: Layout,
        *,
        exact: bool,
    ) -> ArrayState:
        stored = saved.stored if saved is not None else ()
        if declared.nbytes <= layout.chunk_bytes:
            return SmallArray(declared, array, self._xp)
        if self._device is None:
            return HostArray(declared, array, layout, stored, exact=exact)
        if exact:
            return ExactDeviceArray(declared, array, layout, stored, device=self._device)
        return DeviceArray(declared, array, layout, stored, device=self._device)

    def _value(
        self, name: str, kind: Literal["value", "broadcast"], default: Any, evolve: Evolve
    ) -> ValueState[Any]:
        self._claim(name)
        saved = self._take(name, StateForm(kind), evolve)
        # The default may be one object for all instances, and an instance changes its state.
        content = copy.deepcopy(default) if saved is None else decode_value(saved)
        return self._added(name, kind, ValueState[Any](content))

    def _list(self, name: str, kind: Literal["list", "union"], evolve: Evolve) -> ListState[Any]:
        self._claim(name)
        saved, large = self._small(name, self._take(name, StateForm(kind), evolve))
        state = ListState[Any](() if saved is None else decode_value(saved))
        if isinstance(large, LargeList):
            large.keep(state.items)
        return self._added(name, kind, state)

    def _small(
        self, name: str, saved: SavedState | None
    ) -> tuple[SavedState | None, LargeState | None]:
        """Return a map or list as a text, and its table if the checkpoint has it as one."""
        if saved is None or saved.kind != "table" or self._open_table is None:
            return saved, None
        of = saved_of(saved.data)
        large = (LargeMap if of == "map" else LargeList)(
            name, self._at(name), saved_commit(saved.data)
        )
        self._large[name] = large
        return document(name, of, large.read(self._open_table)), large

    def _grown(self, name: str, state: AnyHandle) -> None:
        """Let checkpoints have a map or list as a table from now on."""
        if isinstance(state, MapState):
            large = self._large[name] = LargeMap(name, self._at(name))
            for key in state._entries:
                large.changed(key, added=True)
            state._watch = large
        else:
            self._large[name] = LargeList(name, self._at(name))

    def _new_map(self, name: str, entries: Iterable[tuple[Any, Any]]) -> MapState[Any]:
        return MapState(
            entries,
            where=self._at(name),
            instance=self._instance,
            parallelism=self._parallelism,
        )

    def _added(self, name: str, kind: StateKind, state: H) -> H:
        self._others[name] = (kind, state)
        self._given[name] = state
        return state

    def _added_table(self, name: str, table: TableState) -> TableState:
        saved = self._take(name, StateForm("table", table._description), None)
        if saved is not None:
            table._restore(saved.data)
        keyed = set(self._route_by) <= set(table._key.schema.names)
        if self._parallelism > 1 and self._route_by and keyed:
            table._require_here = partial(self._require_here, name)
        if self._open_table is not None:
            table._begin(self._open_table)
        self._tables[name] = self._given[name] = table
        return table

    def _require_here(self, name: str, rows: pa.RecordBatch) -> None:
        (place,) = instances_of(rows, self._route_by, self._parallelism)
        if place != self._instance:
            raise StateError(
                f"{self._at(name)}: rows with the key {rows.to_pylist()[0]} do not come to "
                f"instance {self._instance} of {self._parallelism}: the key has the columns of "
                "route_by, so that its rows can follow the rows of the stream; give these columns "
                "the type that they have there, or another name"
            )

    def _may_grow(self, kind: StateKind, state: AnyHandle) -> bool:
        return self._open_table is not None and (kind == "list" or isinstance(state, MapState))

    def _prepare(self, name: str, state: AnyHandle) -> None:
        """Find what changed in a large map or list."""
        try:
            if isinstance(state, MapState):
                self._large[name].prepare(state._entries)
            elif isinstance(state, ListState):
                self._large[name].prepare(state.items)
        except StateError as e:
            raise StateError(f"{self._at(name)}: {e}") from None

    def _freeze_other(self, name: str, kind: StateKind, state: AnyHandle) -> SavedState:
        try:
            if isinstance(state, ExpiringValue):
                data, dtype = state.encoded()
            elif isinstance(state, MapState):
                data, dtype = encode_map(state, plain), MAP
            else:
                content = state.items if isinstance(state, ListState) else state.value
                data, dtype = encode_value(content)
        except StateError as e:
            raise StateError(f"{self._at(name)}: {e}") from None
        return SavedState(name, kind, dtype, (len(data),), memoryview(data))

    def _claim(self, name: str) -> None:
        if not name or len(name.encode()) > 1024:
            raise StateError(f"{self._at(name)}: a name has 1 to 1,024 bytes")
        if name in self._given:
            raise StateError(f"{self._at(name)} is declared twice")

    def _take(self, name: str, form: StateForm, evolve: Evolve) -> SavedState | None:
        """Return the state in the checkpoint, in the declared form; None if it has none."""
        saved = self._saved.pop(name, None)
        if saved is None or (found := StateForm.of(saved)) == form:
            return saved
        where = changed(self._at(name), saved=found, declared=form)
        if evolve is None:
            raise StateChangedError(f"{where}. {ADVICE}")
        try:
            small, _ = self._small(name, saved)
            self._large.pop(name, None)
            return self._encoded(name, form, evolve(_content(small or saved)))
        except Exception as e:
            raise StateChangedError(
                f"{where}, and evolve does not convert it: {type(e).__name__}: {message_of(e)}"
            ) from e

    def _encoded(self, name: str, form: StateForm, content: Any) -> SavedState:
        """Return content that `evolve` made as a checkpoint would have it."""
        if form.kind == "array":
            return _encoded_array(name, form, content, self._xp)
        if form.kind == "map":
            state = self._new_map(name, ())
            state.update(content)
            return self._freeze_other(name, "value", state)
        kind = cast("StateKind", form.kind)
        whole = ValueState(content) if kind in ("value", "broadcast") else ListState(content)
        return self._freeze_other(name, kind, whole)

    def _at(self, name: str) -> str:
        return f"state {name!r} of {self._owner}" if self._owner else f"state {name!r}"


def _dimensions(shape: Any, *, at: str) -> tuple[int, ...]:
    given = shape if isinstance(shape, Iterable) else (shape,)
    try:
        return tuple(require_int("shape", one, at_least=0) for one in given)
    except ValueError:
        raise StateError(
            f"{at}: shape={shape!r} is not allowed: expected an integer of at least 0, or a tuple "
            "of such"
        ) from None


def _cut(chunk_bytes: Any, *, at: str) -> Layout:
    if not isinstance(chunk_bytes, int) or chunk_bytes not in CHUNK_BYTES:
        raise StateError(
            f"{at}: chunk_bytes={chunk_bytes!r} is not allowed: expected a power of two from "
            f"{CHUNK_BYTES[0]} to {CHUNK_BYTES[-1]}"
        )
    return Layout(chunk_bytes=chunk_bytes)


def _content(saved: SavedState) -> Any:
    """Return the content of a state in a checkpoint, for `evolve` to use as it likes."""
    if saved.kind == "array":
        return np.frombuffer(saved.data, saved.dtype).reshape(saved.shape).copy()
    return dict(decode_map(saved.data, rich)) if saved.dtype == MAP else decode_value(saved)


def _encoded_array(name: str, form: StateForm, content: Any, xp: Any) -> SavedState:
    made = xp.asnumpy(content) if hasattr(xp, "asnumpy") else np.asarray(content)
    if made.shape != form.shape:
        raise ValueError(f"it returned an array of {made.dtype.str} of shape {made.shape}")
    array = np.array(made.astype(form.dtype, casting="same_kind"), order="C")
    if array.dtype.kind in "iu" and not _holds(array.dtype, made):
        raise ValueError(f"it returned values that {array.dtype} does not hold")
    data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return SavedState(name, "array", form.dtype, form.shape, data)


def _holds(kind: np.dtype[Any], values: npt.NDArray[Any]) -> bool:
    """Say whether the values are the same in a type of integers or booleans."""
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(values.astype(kind), values))


def _device_of(xp: Any) -> Device | None:
    if not hasattr(xp, "asnumpy"):
        return None
    from holdfast.regions.state.arrays.gpu import cupy_device

    return cupy_device()
