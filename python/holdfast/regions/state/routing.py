"""The choice of the parallel instance to which a row goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    Route = Callable[[pa.RecordBatch, int], Sequence[pa.RecordBatch | None]]


def route_by(columns: Sequence[str], *, of: str = "route_by") -> Route:
    """Route rows with equal values in `columns` to one instance, in every run and process.

    Takes a batch and the number of instances; returns a batch, or None, for each instance. An
    instance gets its rows in the order of the batch, so the cut into batches does not matter.
    """
    from holdfast.regions.base.normal_form import take_rows
    from holdfast.regions.base.splitting import route_codes
    from holdfast.regions.state.keyed_map import instance_of

    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        codes, names = route_codes(batch, route_by=columns, of=of)
        owners = np.array([instance_of(name, instances) for name in names], np.int64)
        if len(set(owners.tolist())) == 1:
            return [batch if number == owners[0] else None for number in range(instances)]
        # Ascending, so that rows stay in their order whatever their keys are (R59).
        rows_of = [np.flatnonzero(owners[codes] == number) for number in range(instances)]
        return [take_rows(batch, rows) if len(rows) else None for rows in rows_of]

    return route
