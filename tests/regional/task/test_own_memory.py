"""Rows share no memory with what an operator, or the caller, goes on changing (SEMANTICS R90)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.regions.task.own_memory import OwnMemory

ROWS = pa.schema([("region", pa.string()), ("id", pa.int64())])
COUNTS = pa.schema([("v", pa.int64())])
THREE_EACH = [1, 1, 1, 2, 2, 2, 3, 3, 3]


class Counts(hf.Operator):
    """Counts rows in three cells and puts them out as `put_out` makes rows of them, every time."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.counts = ctx.state.array("counts", shape=3, dtype="int64")
        self.scratch = np.zeros(3, "int64")
        self.buffer = bytearray(24)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for _ in range(batch.num_rows):
            self.counts += 1
            yield pa.record_batch({"v": self.put_out()})

    def put_out(self) -> pa.Array:
        return pa.array(self.counts)


class ReadOnlyView(Counts):
    def put_out(self) -> pa.Array:
        return pa.array(np.broadcast_to(self.counts, (3,)))


class PartOfBuffer(Counts):
    def put_out(self) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(self.counts).slice(0)])


class Foreign(Counts):
    def put_out(self) -> pa.Array:
        address = self.counts.ctypes.data
        return pa.Array.from_buffers(pa.int64(), 3, [None, pa.foreign_buffer(address, 24, self)])


class Scratch(Counts):
    def put_out(self) -> pa.Array:
        self.scratch[:] = self.counts
        return pa.array(self.scratch)


class ReadOnlyScratch(Counts):
    def put_out(self) -> pa.Array:
        self.scratch[:] = self.counts
        view = self.scratch.view()
        view.flags.writeable = False
        return pa.array(view)


class Bytes(Counts):
    def put_out(self) -> pa.Array:
        self.buffer[:] = self.counts.tobytes()
        return pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(self.buffer)])


class Allocated(Counts):
    def open(self, ctx: hf.OperatorContext) -> None:
        super().open(ctx)
        self.allocated = pa.allocate_buffer(24)

    def put_out(self) -> pa.Array:
        np.frombuffer(self.allocated, "int64")[:] = self.counts
        return pa.Array.from_buffers(pa.int64(), 3, [None, self.allocated])


class LocalScratch(Counts):
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        scratch = np.zeros(3, "int64")
        for _ in range(batch.num_rows):
            self.counts += 1
            scratch[:] = self.counts
            yield pa.record_batch({"v": scratch})


class AtTheEnd(Counts):
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return iter(())

    def on_end_of_data(self) -> Iterator[pa.RecordBatch]:
        return super().process(pa.record_batch({"id": [1, 2, 3]}))


class Holding(hf.Operator):
    """Holds rows back in Arrow's own form, and puts them out when data ends."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.held: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> None:
        self.held.append(batch)

    def on_end_of_data(self) -> list[pa.RecordBatch]:
        return self.held


def rows(ids: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"region": ["r"] * len(ids), "id": ids}, schema=ROWS)


def came_out(path: Path, *operators: hf.Operator) -> list[int]:
    """Values that are published when three rows went through the operators."""
    pipeline = hf.regional(region_by="region")
    for number, operator in enumerate(operators):
        pipeline = pipeline.apply(operator, schema=COUNTS, name=f"o{number}")
    with pipeline.write_parquet(path / "out").open_local(path / "ckpt") as query:
        query.run_batch([[rows([1, 2, 3])]])
        query.end_of_data()
    return sorted(pq.read_table(path / "out")["v"].to_pylist())


@pytest.mark.parametrize(
    "operator",
    [
        Counts,
        ReadOnlyView,
        PartOfBuffer,
        Foreign,
        Scratch,
        ReadOnlyScratch,
        Bytes,
        Allocated,
        LocalScratch,
        AtTheEnd,
    ],
)
def test_rows_keep_what_they_had_when_they_were_put_out(
    tmp_path: Path, operator: type[hf.Operator]
) -> None:
    assert came_out(tmp_path, operator()) == THREE_EACH


def test_rows_that_the_next_operator_holds_keep_what_they_had(tmp_path: Path) -> None:
    assert came_out(tmp_path, Scratch(), Holding()) == THREE_EACH


def test_rows_that_a_checkpoint_stores_keep_what_they_had(tmp_path: Path) -> None:
    pipeline = (
        hf.regional(region_by="region")
        .apply(Counts(), schema=COUNTS, name="counts")
        .apply(Holding(), schema=COUNTS, name="holding")
        .write_parquet(tmp_path / "out")
    )
    with pipeline.open_local(tmp_path / "ckpt", aligned_timeout=timedelta(0)) as query:
        query.run_batch([[rows([1, 2, 3])]])
        assert query.latest.regions["r"].in_flight_bytes > 0
    with pipeline.open_local(tmp_path / "ckpt") as query:
        query.end_of_data()
    assert sorted(pq.read_table(tmp_path / "out")["v"].to_pylist()) == THREE_EACH


def test_rows_of_a_caller_who_uses_an_array_again_keep_what_they_had(tmp_path: Path) -> None:
    class Reused:
        """Rows that can be read again, in one array."""

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            ids = np.zeros(1, "int64")
            for number in (1, 2, 3):
                ids[:] = number
                yield pa.record_batch({"region": ["r"], "id": pa.array(ids)}, schema=ROWS)

    class Passing(hf.Operator):
        region_safe = True

        def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch({"v": batch.column("id")})

    pipeline = hf.regional(region_by="region").apply(Passing(), schema=COUNTS)
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt") as query:
        query.run_batch([Reused()])
    assert sorted(pq.read_table(tmp_path / "out")["v"].to_pylist()) == [1, 2, 3]


# --- every type ---------------------------------------------------------------------------------


def nested_dictionary(array: np.ndarray) -> pa.Array:
    inner = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int8()), pa.array(array))
    return pa.StructArray.from_arrays([pa.array(["a", None, "b"]), inner], names=["s", "d"])


ALIASED: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "plain": lambda array: pa.array(array),
    "slice": lambda array: pa.array(array).slice(1, 1),
    "timestamps": lambda array: pa.array(array.view("datetime64[ns]")),
    "half floats": lambda array: pa.array(array.view("float16")[:3]),
    "fixed-size lists": lambda array: pa.FixedSizeListArray.from_arrays(pa.array(array), 3),
    "lists": lambda array: pa.ListArray.from_arrays(pa.array([0, 1, 3]), pa.array(array)),
    "offsets of lists": lambda array: pa.LargeListArray.from_arrays(
        pa.array(array), pa.array([1.0] * 9)
    ),
    "large list views": lambda array: pa.LargeListViewArray.from_arrays(
        pa.array(array), pa.array(array), pa.array([1.0] * 9)
    ),
    "structs": lambda array: pa.StructArray.from_arrays([pa.array(array)], names=["x"]),
    "maps": lambda array: pa.MapArray.from_arrays(
        pa.array([0, 3], pa.int32()), pa.array(["a", "b", "c"]), pa.array(array)
    ),
    "unions": lambda array: pa.UnionArray.from_sparse(
        pa.array([0, 0, 0], pa.int8()), [pa.array(array)]
    ),
    "dictionaries": lambda array: pa.DictionaryArray.from_arrays(
        pa.array([0, 2, 1], pa.int8()), pa.array(array)
    ),
    "indices of dictionaries": lambda array: pa.DictionaryArray.from_arrays(
        pa.array(array), pa.array(list("abcde"))
    ),
    "dictionaries in structs": nested_dictionary,
    "run ends": lambda array: pa.RunEndEncodedArray.from_arrays(
        pa.array(array), pa.array([1, 2, 3])
    ),
    "tensors": lambda array: pa.FixedShapeTensorArray.from_numpy_ndarray(array.reshape(1, 3)),
    "null bits": lambda array: pa.Array.from_buffers(
        pa.int64(), 3, [pa.py_buffer(array.view("uint8")), pa.array([1, 2, 3]).buffers()[1]]
    ),
    "text": lambda array: pa.Array.from_buffers(
        pa.string(), 3, [None, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(array)]
    ),
}


@pytest.mark.parametrize("kind", ALIASED)
def test_a_column_of_any_type_gets_memory_of_its_own(kind: str) -> None:
    array = np.array([1, 2, 3])
    aliased = ALIASED[kind](array)
    same = ALIASED[kind](array.copy())
    fixed = pa.array([7] * len(aliased))
    batch = pa.record_batch({"fixed": fixed, "x": aliased, "also": fixed})
    batch = batch.replace_schema_metadata({"who": "me"})
    own = OwnMemory(batch.schema).of(batch, given=None)
    array[:] = 0
    own.validate(full=True)
    assert own.schema.equals(batch.schema, check_metadata=True)
    assert own.column("x").equals(same)
    assert own.column("fixed").to_pylist() == own.column("also").to_pylist() == [7] * len(aliased)


def addresses(batch: pa.RecordBatch) -> list[int]:
    return [b.address for column in batch.columns for b in column.buffers() if b is not None]


def test_what_is_passed_on_of_the_given_rows_is_not_copied() -> None:
    given = pa.record_batch(
        {
            "n": [1, 2, None],
            "s": ["a", None, "c"],
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "l": [[1], [2, 3], []],
        }
    )
    memory = OwnMemory(given.schema)
    assert memory.of(given, given=given) is given
    for passed in (given.slice(1, 1), given.slice(0)):
        assert memory.of(passed, given=given) is passed
    reordered = given.select(["l", "s"])
    assert OwnMemory(reordered.schema).of(reordered, given=given) is reordered
    more = given.append_column("new", pa.array(np.arange(3)))
    own = OwnMemory(more.schema).of(more, given=given)
    assert own.equals(more)
    assert addresses(own)[:-1] == addresses(more)[:-1]
    assert addresses(own)[-1] != addresses(more)[-1]


def test_a_slice_of_much_is_copied_as_little() -> None:
    much = pa.record_batch({"n": np.arange(1_000_000)})
    own = OwnMemory(much.schema).of(much.slice(500_000, 3), given=None)
    assert own.column("n").to_pylist() == [500_000, 500_001, 500_002]
    assert own.get_total_buffer_size() < 1_000


def test_the_rows_of_an_unknown_extension_type_are_copied() -> None:
    class Celsius(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.float64(), "test.celsius")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Celsius:
            return cls()

    array = np.array([1.0, 2.0])
    batch = pa.record_batch({"t": pa.ExtensionArray.from_storage(Celsius(), pa.array(array))})
    own = OwnMemory(batch.schema).of(batch, given=None)
    array[:] = 0
    assert own.schema.equals(batch.schema)
    assert own.column("t").storage.to_pylist() == [1.0, 2.0]
