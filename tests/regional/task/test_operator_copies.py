"""How the instances of an operator are made from the one that a pipeline is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from support import environment
from support.regional.pipelines import ROWS, partitions_of, rows_of

REGIONS = [f"r{number:02}" for number in range(6)]
FOUND: list[Any] = []


class Holding(hf.Operator):
    """Has a large attribute."""

    region_safe = True

    def __init__(self, held: Any) -> None:
        self.held = held

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        FOUND.append(self.held)
        return batch


class Changing(Holding):
    """Changes what it was given."""

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.held[0] += 1
        assert self.held[0] == 1
        return super().process(batch)


def run(path: Path, operator: hf.Operator) -> None:
    FOUND.clear()
    with (
        hf.regional(region_by="region")
        .apply(operator, schema=ROWS)
        .write_parquet(path / "out")
        .open_local(path / "ckpt")
    ) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
        assert not query.latest.failed
    assert len(FOUND) >= len(REGIONS)


def read_only() -> Any:
    array = np.zeros(1000)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize(
    "held",
    [
        bytes(1000),
        read_only(),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        pa.table({"x": [1]}),
        pa.record_batch({"x": [1]}),
    ],
    ids=lambda held: type(held).__name__,
)
def test_instances_share_what_nobody_can_change(tmp_path: Path, held: Any) -> None:
    run(tmp_path, Holding({"nested": [held]}))
    assert all(found["nested"][0] is held for found in FOUND)


@pytest.mark.parametrize("held", [np.zeros(1000), [0], bytearray(10)], ids=repr)
def test_instances_share_nothing_that_may_change(tmp_path: Path, held: Any) -> None:
    run(tmp_path, Changing(held))
    assert held[0] == 0
    assert len({id(found) for found in FOUND}) == len(REGIONS)


PROGRAM = """
import sys
import holdfast as hf
import pyarrow as pa

FACTOR = 1
SCHEMA = pa.schema([("region", pa.string()), ("id", pa.int64())])


def factor():
    return FACTOR


class Scaled(hf.Operator):
    region_safe = True

    def __init__(self):
        self.of_function = lambda: factor()

    def process(self, batch):
        ids = [FACTOR * self.of_function()] * batch.num_rows
        return pa.record_batch([batch.column("region"), pa.array(ids)], schema=SCHEMA)


def run(number):
    where = f"{sys.argv[1]}/{number}"
    chain = hf.regional(region_by="region").apply(operator, schema=SCHEMA)
    with chain.foreach_batch(lambda rows, _: print(rows)).open_local(where) as query:
        query.run_batch([[pa.record_batch({"region": ["a"], "id": [1]}, schema=SCHEMA)]])


operator = Scaled()
PRINTED = []
print = lambda rows: PRINTED.extend(rows.column("id").to_pylist())
for FACTOR in (2, 3):
    run(FACTOR)
assert PRINTED == [4, 9], PRINTED
assert operator.process.__func__.__globals__ is globals()
"""


def test_a_class_of_the_main_program_sees_what_its_globals_are_now(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [sys.executable, program, tmp_path / "ckpt"], env=environment(), check=True, timeout=120
    )
