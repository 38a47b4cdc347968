"""Values, lists and what else is no array: defaults, and whose they are (SEMANTICS R90)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.state import StateRegistry
from pipelines import COUNTED, Troubled, expected, output_of, partitions_of, rows_of

REGIONS = ["r0", "r1", "r2"]


class CountsInDefault(Troubled):
    """Counts in a dict that every instance gives as the default of its state."""

    EMPTY: ClassVar[dict[str, Any]] = {"rows": 0, "keys": []}

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.seen = ctx.state.value("seen", self.EMPTY)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        seen, out = self.seen.value, []
        for region, row, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            seen["rows"] += 1
            seen["keys"].append(key)
            out.append((region, row, seen["rows"], seen["keys"].count(key)))
        if Troubled.trouble is not None:
            Troubled.trouble(self.region, batch.column("id").to_pylist())
        return pa.RecordBatch.from_pylist(
            [dict(zip(COUNTED.names, row, strict=True)) for row in out], schema=COUNTED
        )


def test_a_default_belongs_to_one_instance_and_one_attempt(tmp_path: Path) -> None:
    tries = []

    def fail_twice(region: str, ids: Sequence[int]) -> None:
        if region == "r1" and len(tries) < 2:
            tries.append(region)
            raise RuntimeError("in trouble")

    batches = [rows_of(number, REGIONS) for number in range(3)]
    Troubled.trouble = fail_twice
    try:
        pipeline = hf.regional(region_by="region").apply(CountsInDefault(), schema=COUNTED)
        with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
            for number, rows in enumerate(batches):
                query.run_batch(partitions_of(rows, 2), batch_id=number)
            query.finish()
    finally:
        Troubled.trouble = None
    assert len(tries) == 2
    assert CountsInDefault.EMPTY == {"rows": 0, "keys": []}
    assert output_of(tmp_path / "out") == expected(batches)


@pytest.mark.parametrize("declare", [StateRegistry.value, StateRegistry.broadcast])
def test_a_default_is_not_changed_with_the_state(declare: Any) -> None:
    default = {"all": [1, 2]}
    state = declare(StateRegistry(np), "seen", default)
    state.value["all"].append(3)
    assert default == {"all": [1, 2]}
    assert declare(StateRegistry(np), "seen", default).value == default
