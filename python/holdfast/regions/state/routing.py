"""Which of several parallel instances a row goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    Route = Callable[[pa.RecordBatch, int], Sequence[pa.RecordBatch | None]]


def route_by(columns: Sequence[str]) -> Route:
    """Rows with equal values in `columns` go to the same instance, in every run and every process.

    An instance gets its rows in the order of the batch, so what it sees does not depend on how the
    rows were cut into batches.

    Parameters
    ----------
    columns : sequence of str
        Columns of the rows that come in.

    Returns
    -------
    callable
        From a batch and the number of instances to one batch, or None, for each instance.
    """
    import numpy as np
    import pyarrow as pa

    from holdfast.regions.base.splitting import region_codes
    from holdfast.regions.state.keyed_map import instance_of

    def route(batch: pa.RecordBatch, instances: int) -> list[pa.RecordBatch | None]:
        codes, names = region_codes(batch, region_by=columns)
        owners = np.array([instance_of(name, instances) for name in names], np.int64)
        if len(set(owners.tolist())) == 1:
            return [batch if number == owners[0] else None for number in range(instances)]
        instance_of_row = owners[codes]
        parts: list[pa.RecordBatch | None] = []
        for number in range(instances):
            # Ascending, so that rows stay in their order whatever their keys are (R59).
            rows = np.flatnonzero(instance_of_row == number)
            parts.append(batch.take(pa.array(rows)) if len(rows) else None)
        return parts

    return route
