"""Arrays: the operator changes them in place, in host memory or on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast._checks import require_int
from holdfast.regions.base.saved import Lease, SavedState, StateError
from holdfast.regions.state.arrays.chunks import CHUNK_BYTES, Layout
from holdfast.regions.state.arrays.device import Device
from holdfast.regions.state.arrays.device_arrays import DeviceArray
from holdfast.regions.state.arrays.exact_arrays import ExactDeviceArray
from holdfast.regions.state.arrays.host import ArrayState, Declared, HostArray, SmallArray
from holdfast.regions.state.kinds.kind import Commit, Kind, Scope

#: Larger arrays are not filled where they are only declared, so most pages remain untouched.
_FILLED_BYTES: Final = 1024 * 1024


class ArrayKind(Kind):
    """An array of one type and shape, see `StateRegistry.array`."""

    kind = "array"
    noun = "array"
    advice = "with {place}[...] = ..., or with +=, -= and their like"

    def __init__(
        self,
        scope: Scope,
        name: str,
        shape: Any,
        dtype: npt.DTypeLike,
        fill: Any,
        *,
        exact: bool,
        chunk_bytes: int | None,
    ) -> None:
        super().__init__(scope, name)
        wanted = np.dtype(dtype)
        if wanted.kind not in "biufc":
            raise StateError(
                f"{self.where}: an array of {wanted} cannot be kept; use booleans, integers, "
                "floating point or complex numbers"
            )
        if wanted.kind in "biu" and not _holds(wanted, np.asarray(fill)):
            raise StateError(f"{self.where}: fill={fill!r} is not allowed: no {wanted} is {fill}")
        self._declared = Declared(name, wanted, self._dimensions(shape), self.where)
        self.form = f"an array of {wanted.str} of shape {self._declared.shape}"
        self._layout = scope.options.layout if chunk_bytes is None else self._cut(chunk_bytes)
        self._fill = fill
        self._exact = exact

    def restore(self, saved: SavedState | None) -> None:
        """See `Kind`."""
        device = device_of(self.scope.xp)
        self.handle = self._restored(saved, device)
        self._state = self._followed(saved, device)

    def take(self, lease: Lease) -> Commit:
        """See `Kind`."""
        frozen = self._state.freeze(lease)
        return lambda: frozen

    def encoded(self, content: Any) -> SavedState:
        """See `Kind`."""
        xp, shape, dtype = self.scope.xp, self._declared.shape, self._declared.dtype
        made = xp.asnumpy(content) if hasattr(xp, "asnumpy") else np.asarray(content)
        if made.shape != shape:
            raise ValueError(f"it returned an array of {made.dtype.str} of shape {made.shape}")
        array = np.array(made.astype(dtype, casting="same_kind"), order="C")
        if dtype.kind in "iu" and not _holds(dtype, made):
            raise ValueError(f"it returned values that {dtype} does not hold")
        data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        return SavedState(self.name, "array", dtype.str, shape, data)

    def _restored(self, saved: SavedState | None, device: Device | None) -> Any:
        declared, xp = self._declared, self.scope.xp
        if saved is not None:
            content = np.frombuffer(saved.data, declared.dtype).reshape(declared.shape)
            if device is not None:
                return device.upload(content)
            # The operator changes it in place, so it has to be its own.
            return content.copy() if saved.data.readonly else content
        if self.scope.options.only_declared and declared.nbytes > _FILLED_BYTES:
            return xp.zeros(declared.shape, declared.dtype)
        array = xp.full(declared.shape, self._fill, dtype=declared.dtype)
        if device is not None:
            device.view(array)  # waits, since the operator may use another stream
        return array

    def _followed(self, saved: SavedState | None, device: Device | None) -> ArrayState:
        declared, array, layout = self._declared, self.handle, self._layout
        if self.scope.options.only_declared or declared.nbytes <= layout.chunk_bytes:
            return SmallArray(declared, array, self.scope.xp)
        stored = saved.stored if saved is not None else ()
        if device is None:
            return HostArray(declared, array, layout, stored, exact=self._exact)
        of_kind = ExactDeviceArray if self._exact else DeviceArray
        return of_kind(declared, array, layout, stored, device=device)

    def _dimensions(self, shape: Any) -> tuple[int, ...]:
        given = shape if isinstance(shape, Iterable) else (shape,)
        try:
            return tuple(require_int("shape", one, at_least=0) for one in given)
        except ValueError:
            raise StateError(
                f"{self.where}: shape={shape!r} is not allowed: expected an integer of at least 0, "
                "or a tuple of such"
            ) from None

    def _cut(self, chunk_bytes: Any) -> Layout:
        if not isinstance(chunk_bytes, int) or chunk_bytes not in CHUNK_BYTES:
            raise StateError(
                f"{self.where}: chunk_bytes={chunk_bytes!r} is not allowed: expected a power of "
                f"two from {CHUNK_BYTES[0]} to {CHUNK_BYTES[-1]}"
            )
        return Layout(chunk_bytes=chunk_bytes)


def device_of(xp: Any) -> Device | None:
    """Return the device that the arrays of a module are on; None for host memory."""
    if not hasattr(xp, "asnumpy"):
        return None
    from holdfast.regions.state.arrays.gpu import cupy_device

    return cupy_device()


def _holds(kind: np.dtype[Any], values: npt.NDArray[Any]) -> bool:
    """Say whether the values are the same in a type of integers or booleans."""
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(values.astype(kind), values))
