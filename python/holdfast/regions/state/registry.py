"""State handles: what an operator declares in `open` and every checkpoint contains.

State is a data type, a shape and bytes, readable without the program that wrote it: nothing is
pickled (R71).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from holdfast.regions.state.arrays import ArrayState, Declared, FrozenArray, HostArray, SmallArray
from holdfast.regions.state.bindings import Bindings
from holdfast.regions.state.chunks import Layout
from holdfast.regions.state.device import Device
from holdfast.regions.state.device_arrays import DeviceArray
from holdfast.regions.state.exact_arrays import ExactDeviceArray
from holdfast.regions.state.keyed_map import MAP, MapState, decode_map, encode_map
from holdfast.regions.state.saved import LeaseOf, SavedState, StateError, StateKind
from holdfast.regions.state.values import decode_value, encode_value, plain, rich

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")

FrozenState: TypeAlias = SavedState | FrozenArray
"""Content of a state at one moment: all of it, or a large array that is yet to be written."""

AnyHandle: TypeAlias = "ValueState[Any] | ListState[Any] | MapState[Any]"

FrozenStates = list[FrozenState]  # `list` is a method of the registry


class ValueState(Generic[T]):
    """One value: None, bool, int, float, str, bytes, and lists and dicts (with str keys) of these.

    Attributes
    ----------
    value
        The content. Replace it, or change it in place.
    """

    def __init__(self, value: T) -> None:
        self.value = value


class ListState(Generic[T]):
    """A list of such values that can be split when instances are cut anew."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.items = list(items)

    def append(self, item: T) -> None:
        """Add one item at the end."""
        self.items.append(item)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class StateRegistry:
    """The states of one operator instance.

    Parameters
    ----------
    xp : module
        Array module, NumPy or CuPy.
    saved : iterable of SavedState
        What the checkpoint has for the instance; nothing for a new region.
    owner : str
        Operator and region, for messages.
    layout : Layout
        How large arrays are cut.
    instance, parallelism : int
        Which of how many instances of the operator it is, in its region.
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
    ) -> None:
        self._xp = xp
        self._layout = layout
        self._device = _device_of(xp)
        self._owner = owner
        self._instance = instance
        self._parallelism = parallelism
        self._saved = {state.name: state for state in saved}
        self._arrays: dict[str, ArrayState] = {}
        self._others: dict[str, tuple[StateKind, AnyHandle]] = {}
        # What the operator has: the arrays, and the handles.
        self._given: dict[str, object] = {}

    # --- declaring ------------------------------------------------------------------------------

    def array(
        self,
        name: str,
        *,
        shape: int | tuple[int, ...],
        dtype: npt.DTypeLike = "float64",
        fill: float | int | bool = 0,
        exact: bool = False,
    ) -> Any:
        """Declare an array.

        Parameters
        ----------
        name : str
            Unique in the operator.
        shape : int or tuple of int
            Its shape. A checkpoint restores only into the same shape and data type.
        dtype : NumPy data type, default float64
            Booleans, integers, floating point, complex; nothing with Python objects in it.
        fill : scalar, default 0
            Content in a new region.
        exact : bool, default False
            Find what changed since the last checkpoint by comparison with a copy of the array,
            byte by byte. Otherwise digests of its chunks are compared: a chunk that changed goes
            unnoticed with a probability of 2^-127. The copy takes as much memory as the array, on
            a device twice as much during a snapshot. It makes no difference to an array of 1 MiB
            at most, which is always written whole.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            Writable, in C order, of `shape` and `dtype`. Change it in place: this very array is
            snapshotted. ``self.x += 1`` does; ``self.x = self.x + 1`` makes another array, and
            fails the next snapshot.

        Raises
        ------
        StateError
            If the name is taken, the type cannot be kept, or the checkpoint has something else
            under this name.
        """
        import numpy as np

        self._claim(name)
        wanted = np.dtype(dtype)
        if wanted.kind not in "biufc":
            raise StateError(
                f"{self._at(name)}: an array of {wanted} cannot be kept; use booleans, integers, "
                "floating point or complex numbers"
            )
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        saved = self._take(name, "array")
        if saved is not None and (saved.dtype, saved.shape) != (wanted.str, dims):
            raise StateError(
                f"{self._at(name)}: the checkpoint has {saved.dtype} of shape {saved.shape}, "
                f"the operator declares {wanted.str} of shape {dims}"
            )
        declared = Declared(name, wanted, dims, self._at(name))
        array = self._restored(declared, saved, fill)
        self._arrays[name] = self._tracked(declared, array, saved, exact=exact)
        self._given[name] = array
        return array

    def value(self, name: str, default: T | None = None) -> ValueState[T | None]:
        """Declare one small value, see `ValueState`.

        A copy of `default` is its content in a new region.
        """
        return self._value(name, "value", default)

    def map(self, name: str) -> MapState[Any]:
        """Declare a dict by the values of `route_by`, see `MapState`.

        With another parallelism, its entries go where the rows of their keys go.
        """
        self._claim(name)
        saved = self._take(name, "value")
        if saved is not None and saved.dtype != MAP:
            raise StateError(
                f"{self._at(name)}: the checkpoint has a value there, the operator declares a map"
            )
        state = MapState[Any](
            () if saved is None else decode_map(saved.data, rich),
            where=self._at(name),
            instance=self._instance,
            parallelism=self._parallelism,
        )
        self._others[name] = ("value", state)
        self._given[name] = state
        return state

    def list(self, name: str) -> ListState[Any]:
        """Declare a list that is split evenly over another number of instances.

        Its items belong to no key: one may go to an instance that does not see the rows of the key.
        What belongs to a key is kept in a `map`.
        """
        return self._list(name, "list")

    def union(self, name: str) -> ListState[Any]:
        """Declare a list of which new regions and new instances get all items.

        A region that no checkpoint knows begins with the items of all regions that the latest one
        has. When the operator's parallelism or `route_by` changes, every instance in every region
        gets all items. Otherwise a region goes on with its own. A pipeline with such a state is
        never regional: new regions see what the others wrote.
        """
        return self._list(name, "union")

    def broadcast(self, name: str, default: T | None = None) -> ValueState[T | None]:
        """Declare a value that is the same in all regions, and copied to new regions and instances.

        `default` is its content in the first regions. The operator keeps it the same everywhere:
        where regions have different ones, a new region fails with an error that names two of them.
        A pipeline with such a state is never regional: regions would have to agree on it.
        """
        return self._value(name, "broadcast", default)

    # --- snapshots ------------------------------------------------------------------------------

    @property
    def kinds(self) -> frozenset[StateKind]:
        """Kinds of the declared states."""
        kinds: set[StateKind] = {kind for kind, _ in self._others.values()}
        if self._arrays:
            kinds.add("array")
        return frozenset(kinds)

    def check_restored(self) -> None:
        """Fail when the checkpoint has a state that `open` did not declare: it would be lost.

        Raises
        ------
        StateError
            Naming it.
        """
        if self._saved:
            names = ", ".join(repr(name) for name in sorted(self._saved))
            raise StateError(
                f"{self._owner}: the checkpoint has state {names} that the operator does not "
                "declare in open(); declare it, or start with a new checkpoint"
            )

    def bindings(self, operator: object) -> Bindings:
        """Note where an operator keeps the states; to be called when it has opened."""
        return Bindings(operator, self._given, unwatched=(StateRegistry,))

    def freeze(self, lease: LeaseOf) -> FrozenStates:
        """Take everything as it is now: the only part of a snapshot the operator waits for.

        Parameters
        ----------
        lease : callable
            Given the name of a state and references, asks which of these older segments the
            attempt may refer to.

        Returns
        -------
        list of SavedState or FrozenArray
            Sorted by name; independent of later changes.

        Raises
        ------
        StateError
            If a value holds something that cannot be kept, or an array was reshaped.
        AttemptEndedError, OSError
            What `lease` raises.
        """
        frozen: FrozenStates = [
            array.freeze(partial(lease, name)) for name, array in self._arrays.items()
        ]
        for name, (kind, state) in self._others.items():
            frozen.append(self._freeze_other(name, kind, state))
        return sorted(frozen, key=lambda state: state.name)

    # --- details --------------------------------------------------------------------------------

    def _restored(self, declared: Declared, saved: SavedState | None, fill: Any) -> Any:
        import numpy as np

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
        self, declared: Declared, array: Any, saved: SavedState | None, *, exact: bool
    ) -> ArrayState:
        if declared.nbytes <= self._layout.chunk_bytes:
            return SmallArray(declared, array, self._xp)
        stored = saved.stored if saved is not None else ()
        if self._device is not None:
            kind = ExactDeviceArray if exact else DeviceArray
            return kind(declared, array, self._layout, stored, device=self._device)
        return HostArray(declared, array, self._layout, stored, exact=exact)

    def _value(
        self, name: str, kind: Literal["value", "broadcast"], default: Any
    ) -> ValueState[Any]:
        self._claim(name)
        saved = self._take(name, kind)
        if saved is not None and saved.dtype == MAP:
            raise StateError(
                f"{self._at(name)}: the checkpoint has a map there, the operator declares a {kind}"
            )
        # The default may be one object for all instances, and an instance changes its state.
        content = copy.deepcopy(default) if saved is None else decode_value(saved)
        state = ValueState[Any](content)
        self._others[name] = (kind, state)
        self._given[name] = state
        return state

    def _freeze_other(self, name: str, kind: StateKind, state: AnyHandle) -> SavedState:
        try:
            if isinstance(state, MapState):
                data = encode_map(state, plain)
                return SavedState(name, kind, MAP, (len(data),), memoryview(data))
            content = state.items if isinstance(state, ListState) else state.value
            data, dtype = encode_value(content)
            return SavedState(name, kind, dtype, (len(data),), memoryview(data))
        except StateError as e:
            raise StateError(f"{self._at(name)}: {e}") from None

    def _list(self, name: str, kind: Literal["list", "union"]) -> ListState[Any]:
        self._claim(name)
        saved = self._take(name, kind)
        state = ListState[Any](() if saved is None else decode_value(saved))
        self._others[name] = (kind, state)
        self._given[name] = state
        return state

    def _claim(self, name: str) -> None:
        if not name or len(name.encode()) > 1024:
            raise StateError(f"{self._at(name)}: a name has 1 to 1,024 bytes")
        if name in self._arrays or name in self._others:
            raise StateError(f"{self._at(name)} is declared twice")

    def _take(self, name: str, kind: StateKind) -> SavedState | None:
        saved = self._saved.pop(name, None)
        if saved is not None and saved.kind != kind:
            raise StateError(
                f"{self._at(name)}: the checkpoint has a state of kind {saved.kind!r} there, the "
                f"operator declares {kind!r}"
            )
        return saved

    def _at(self, name: str) -> str:
        return f"state {name!r} of {self._owner}" if self._owner else f"state {name!r}"


def _device_of(xp: Any) -> Device | None:
    if not hasattr(xp, "asnumpy"):
        return None
    from holdfast.regions.state.gpu import cupy_device

    return cupy_device()
