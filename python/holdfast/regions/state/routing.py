"""The choice of the parallel instance to which a row goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    Route = Callable[[pa.RecordBatch, int], Sequence[pa.RecordBatch | None]]


def route_by(columns: Sequence[str], *, of: str = "route_by") -> Route:
    """Route rows with equal values in `columns` to one instance, in every run and process.

    Takes a batch and the number of instances; returns a batch, or None, for each instance. An
    instance gets its rows in the order of the batch, so the cut into batches does not matter.
    """
    from holdfast.regions.base.normal_form import take_rows

    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        owners = instances_of(batch, columns, instances, of=of)
        if len(owners) and (owners == owners[0]).all():
            return [batch if number == owners[0] else None for number in range(instances)]
        # Ascending, so that rows stay in their order whatever their keys are (R59).
        rows_of = [np.flatnonzero(owners == number) for number in range(instances)]
        return [take_rows(batch, rows) if len(rows) else None for rows in rows_of]

    return route


def instances_of(
    batch: pa.RecordBatch, columns: Sequence[str], instances: int, *, of: str = "route_by"
) -> npt.NDArray[Any]:
    """Return for each row the number of the instance to which it goes."""
    from holdfast.regions.base.splitting import route_codes
    from holdfast.regions.state.keyed_map import instance_of

    codes, names = route_codes(batch, route_by=columns, of=of)
    owners = np.array([instance_of(name, instances) for name in names], np.int64)
    found: npt.NDArray[Any] = owners[codes]
    return found
