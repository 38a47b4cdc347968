"""The rows of both sides of a join as one relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from holdfast.files.arrow_paths import ReadPath
from holdfast.reading.opened_state import OpenedState
from holdfast.reading.state_differences import distinct
from holdfast.reading.store_state import StoreState

#: The name of this state, beside those of the stores of a join.
JOINED: Final = "join"


class JoinState(OpenedState):
    """All rows of both sides of a join; see `OpenedState`.

    A row has the columns of the join's key, its `side`, and a struct for each side with the columns
    of its rows. The struct is null in rows of the other side.
    """

    def __init__(self, folder: ReadPath, batch_id: int, sides: Mapping[str, StoreState]) -> None:
        self._sides = sides
        first = next(iter(sides.values()))
        # The number of a row within its key is left out.
        columns = [first.schema.field(name) for name in first.key_names[:-1]]
        columns.append(pa.field("side", pa.string()))
        keys = len(columns)
        for side, state in sides.items():
            columns.append(pa.field(side, pa.struct([*distinct(state.value_fields)])))
        super().__init__(folder, batch_id, pa.schema(columns), keys)

    def close(self) -> None:
        """See `OpenedState`."""
        super().close()
        for state in self._sides.values():
            state.close()

    def __len__(self) -> int:
        """Return the number of rows of both sides."""
        return sum(map(len, self._sides.values()))

    def _scanned(self, prefix: list[Any] | None) -> Iterator[Any]:
        # The scans may outlive this object, so they begin now.
        scans = [(side, state.scan()) for side, state in self._sides.items()]
        return (self._batch(side, batch) for side, scan in scans for batch in scan)

    def _batch(self, side: str, batch: Any) -> Any:
        """Return rows of a side with the columns of this state."""
        rows, keys = len(batch), len(self.key_names)
        kind = self.schema.field(side).type
        structs = {one: pa.nulls(rows, self.schema.field(one).type) for one in self._sides}
        # The store has the number of the row where this state has the side.
        structs[side] = pa.StructArray.from_arrays(batch.columns[keys:], fields=[*kind])
        arrays = [*batch.columns[: keys - 1], pa.repeat(side, rows), *structs.values()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
