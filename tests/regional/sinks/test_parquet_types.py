"""Columns of Parquet files are what readers take them for, or the start refuses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from support.regional.parquet_types import READ, REFUSED


class Through(hf.Operator):
    region_safe = True

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def writer(path: Path, schema: pa.Schema, *, by: str = "write_parquet") -> hf.RegionalWriter:
    applied = hf.regional(region_by="region").apply(Through(), schema=schema, name="through")
    if by == "foreach_batch":
        return applied.foreach_batch(lambda rows, checkpoint: None)
    if by == "write_delta":
        return applied.write_delta(path / "out")
    return applied.write_parquet(path / "out")


def column(kind: Any, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def test_pyarrow_reads_the_values_of_every_type_that_the_start_allows(tmp_path: Path) -> None:
    columns = {f"c{number}": column(kind, READ[kind][0]) for number, kind in enumerate(READ)}
    rows = pa.record_batch({"region": ["a", "a"], **columns})
    with writer(tmp_path, rows.schema).open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).to_pydict() == rows.to_pydict()


def test_a_null_in_a_dictionary_is_a_null(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), ["a", None])
    rows = pa.record_batch({"region": ["a", "a", "a"], "of": values})
    with writer(tmp_path, rows.schema).open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["of"].to_pylist() == ["a", None, None]


class Copies(hf.Operator):
    """Passes rows on, and gives them to a side output, too."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.ctx = ctx

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.ctx.emit("copies", batch)
        return batch


SMALL = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        (SMALL, lambda text: text),
        (pa.dictionary(pa.uint8(), pa.string()), lambda text: text),
        (pa.dictionary(pa.int8(), pa.int64()), int),
        (pa.list_(SMALL), lambda text: [text]),
        (pa.struct([("x", SMALL)]), lambda text: {"x": text}),
        (pa.map_(pa.string(), SMALL), lambda text: [("k", text)]),
    ],
)
def test_a_dictionary_has_more_values_than_its_small_indices_tell_apart(
    tmp_path: Path, kind: pa.DataType, of: Callable[[str], Any]
) -> None:
    values = [of(str(number)) for number in range(300)]
    batches = [
        pa.record_batch({"region": ["a"] * 100, "of": pa.array(values[at : at + 100], kind)})
        for at in range(0, 300, 100)
    ]
    schema = batches[0].schema
    passes = (
        hf.regional(region_by="region")
        .side("copies", schema=schema)
        .write_parquet(tmp_path / "copies")
        .apply(Copies(), schema=schema, name="copies")
        .write_parquet(tmp_path / "out")
    )
    with passes.open_local(tmp_path / "ckpt") as query:
        query.run_batch([batches])
    for folder in ("out", "copies"):
        (file,) = (tmp_path / folder).glob("*.parquet")
        assert pq.read_table(file)["of"].to_pylist() == values


def test_the_start_refuses_what_spark_or_pyarrow_reads_as_something_else(tmp_path: Path) -> None:
    for kind, problem in REFUSED.items():
        schema = pa.schema([("region", pa.string()), ("of", kind)])
        said = f"write_parquet cannot write .*: column 'of' is {re.escape(str(kind))}: {problem}"
        with pytest.raises(ValueError, match=f"^{said}"):
            writer(tmp_path, schema).open_local(tmp_path / "ckpt")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("by", ["foreach_batch", "write_delta"])
def test_other_sinks_that_write_parquet_files_refuse_it_too(tmp_path: Path, by: str) -> None:
    if by == "write_delta":
        pytest.importorskip("deltalake")
    schema = pa.schema([("region", pa.string()), ("of", pa.uuid())])
    with pytest.raises(ValueError, match=f"^{by} cannot write .* column 'of' is extension"):
        writer(tmp_path, schema, by=by).open_local(tmp_path / "ckpt")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [([], "has no column"), (["of", "Of"], "the columns 'of' and 'Of' are one for Spark")],
)
def test_columns_that_are_one_for_spark_or_none_are_refused(
    tmp_path: Path, names: list[str], message: str
) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(ValueError, match=message):
        writer(tmp_path, schema).open_local(tmp_path / "ckpt")


def test_the_message_says_everything_that_is_wrong_and_its_advice_works(tmp_path: Path) -> None:
    kinds = {"at": pa.timestamp("ns", "UTC"), "took": pa.duration("us")}
    rows = pa.record_batch(
        {"region": ["a"], "at": pa.array([1000], kinds["at"]), "took": pa.array([5], kinds["took"])}
    )
    with pytest.raises(ValueError, match=r"column 'at' is .*; column 'took' is .*declare int64"):
        writer(tmp_path, rows.schema).open_local(tmp_path / "ckpt")
    declared = pa.schema(
        [("region", pa.string()), ("at", pa.timestamp("us", "UTC")), ("took", pa.int64())]
    )
    rows = rows.set_column(2, "took", rows["took"].cast(pa.int64()))
    with writer(tmp_path, declared).open_local(tmp_path / "ckpt") as query:
        query.run_batch([[rows]])
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["at"].cast(pa.int64()).to_pylist() == [1]
