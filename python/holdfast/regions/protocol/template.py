"""A template of an operator: instances share constant parts, and get copies of the rest."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any


class OperatorTemplate:
    """Makes operators that share no state with each other.

    They share classes, functions without closures, and constant objects: `bytes`, Arrow's arrays
    and tables, and read-only NumPy arrays. The template is the operator before it is opened.
    """

    def __init__(self, operator: Any) -> None:
        stream = io.BytesIO()
        pickler = _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dump(operator)
        self._copied = stream.getbuffer()
        self._shared = pickler.shared

    def operator(self) -> Any:
        """Return another operator."""
        unpickler = _Unpickler(io.BytesIO(self._copied))
        unpickler.shared = self._shared
        return unpickler.load()


class _Pickler(pickle.Pickler):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shared: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not _is_shared(value):
            return None
        if (number := self._numbers.get(id(value))) is None:
            number = self._numbers[id(value)] = len(self.shared)
            self.shared.append(value)
        return number


class _Unpickler(pickle.Unpickler):
    shared: list[Any]

    def persistent_load(self, number: Any) -> Any:
        return self.shared[number]


def _is_shared(value: object) -> bool:
    if isinstance(value, FunctionType):
        return value.__closure__ is None  # cells of a closure may change
    if isinstance(value, type | bytes):
        return True
    if type(value).__module__ == "pyarrow.lib":
        import pyarrow as pa

        return isinstance(
            value, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table | pa.Schema | pa.DataType
        )
    if type(value).__module__ == "numpy":
        import numpy as np

        return type(value) is np.ndarray and not value.flags.writeable
    return False
