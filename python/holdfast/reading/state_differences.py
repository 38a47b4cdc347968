"""The rows of `OpenedState.diff` and `OpenedState.watch`: how keys of a state differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.reading.spark_types import built_array

#: The number of values of each key (int32), and the columns of the values.
Side = tuple[bytes, Sequence[Any]]


class StateChanges(NamedTuple):
    """The changes of one batch to the keys of a state.

    Attributes
    ----------
    batch_id : int
        The batch.
    rows : pyarrow.Table
        The columns of the key, `change` ("upserted" or "removed"), and a struct `after` of the
        columns of the value. A removed key has null there. No rows if the batch changed nothing.
    """

    batch_id: int
    rows: pa.Table


class DifferenceRows:
    """Builds rows of the columns of a key, `change`, and structs of the columns of the value.

    A list has a list of structs. Without `before`, keys are "upserted" or "removed".
    """

    def __init__(self, columns: Any, keys: int, *, is_list: bool, before: bool) -> None:
        self._keys, self._values = [*columns][:keys], [*columns][keys:]
        self._is_list = is_list
        self._before = before
        value = pa.struct(self._values)
        value = pa.list_(value) if is_list else value
        named = [("before", value)] * before + [("after", value)]
        added = [pa.field(name, kind) for name, kind in [("change", pa.string()), *named]]
        self.schema = pa.schema([*distinct([*self._keys, *added])])

    def batch(self, keys: Sequence[Any], sides: tuple[Side, Side]) -> Any:
        """Return rows from the parts that the core built."""
        counts = [np.frombuffer(side[0], np.int32) for side in sides]
        is_both = (counts[0] > 0) & self._before
        names = ["added", "removed", "changed"] if self._before else ["upserted", "removed"]
        changes = np.where(counts[1] > 0, np.where(is_both, 2, 0), 1)
        arrays = [*map(built_array, [field.type for field in self._keys], keys)]
        arrays.append(pa.array(names).take(pa.array(changes)))
        for (_, columns), count in [*zip(sides, counts, strict=True)][not self._before :]:
            arrays.append(self._values_of(columns, count))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values_of(self, columns: Sequence[Any], counts: Any) -> Any:
        built = [*map(built_array, [field.type for field in self._values], columns)]
        absent = pa.array(counts == 0)
        if not self._is_list:
            return pa.StructArray.from_arrays(built, fields=self._values, mask=absent)
        values = pa.StructArray.from_arrays(built, fields=self._values)
        # A key without values has one null.
        ends = np.cumsum(np.maximum(counts, 1), dtype=np.int32)
        offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, mask=absent)


def distinct(fields: Sequence[Any]) -> Iterator[Any]:
    """Yield fields with distinct names: the second ``sum`` is ``sum_2``."""
    taken = {field.name for field in fields}
    seen: set[str] = set()
    for field in fields:
        name, number = field.name, 1
        while name in seen or (number > 1 and name in taken):
            number += 1
            name = f"{field.name}_{number}"
        seen.add(name)
        yield field.with_name(name)
