"""Rows that the command line writes have the values, in every type and format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.cli.main import main
from support.exported_values import NOT_IN_PARQUET, VALUES

COLUMNS = {
    name: pa.array([value, None], kind) if name != "null" else pa.nulls(2)
    for name, (value, kind, _) in VALUES.items()
}
GIVEN = pa.table({"region": ["bern", "bern"], **COLUMNS})


class Failing(hf.Operator):
    """Takes the first batch of a region only."""

    region_safe = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.seen = ctx.state.value("seen", default=0)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.seen.value and batch.column("region")[0].as_py() == "bern":
            raise RuntimeError("no")
        self.seen.value += batch.num_rows
        yield batch.select(["region"])


@pytest.fixture
def stuck(tmp_path: Path) -> str:
    """A checkpoint with a region in quarantine that owes `GIVEN`."""
    chain = hf.regional(region_by="region").apply(
        Failing(), schema=pa.schema({"region": pa.string()}), name="failing"
    )
    folder = tmp_path / "ckpt"
    good = GIVEN.set_column(0, "region", pa.array(["chur", "chur"]))
    options = {"quarantine_after": 1}
    with chain.write_parquet(tmp_path / "out").open_local(folder, **options) as query:
        for number in range(2):
            parts = [table.to_batches() for table in (GIVEN, good)]
            query.run_batch(parts, batch_id=number)
    return str(folder)


def assert_equal(found: pa.Array, name: str) -> None:
    wanted = COLUMNS[name]
    # NaN is not equal to itself.
    assert found.equals(wanted) or (name == "nan" and str(found) == str(wanted)), name


def same_in_parquet(found: pa.Table) -> None:
    for name, column in COLUMNS.items():
        if name in NOT_IN_PARQUET:
            texts = [None if text is None else json.loads(text) for text in found[name].to_pylist()]
            assert texts == [VALUES[name][2], None], name
        else:
            # Parquet has no seconds, and one type of dates.
            same = found[name].combine_chunks().cast(column.type)
            assert_equal(same, name)


def test_rows_in_quarantine_are_written_as_they_are(
    stuck: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    show = ["quarantine", stuck, "show", "--region", "bern", "--rows"]
    assert main([*show, "json"]) == 0
    first, last = (json.loads(line) for line in capsysbinary.readouterr().out.splitlines())
    for name, (_, _, wanted) in VALUES.items():
        assert repr(first[name]) == repr(wanted), name
        assert last[name] is None, name

    assert main([*show, "arrow"]) == 0
    found = pa.ipc.open_stream(capsysbinary.readouterr().out).read_all()
    for name, column in COLUMNS.items():
        assert found[name].type == column.type, name
        assert_equal(found[name].combine_chunks(), name)

    assert main([*show, "parquet"]) == 0
    same_in_parquet(pq.read_table(pa.BufferReader(capsysbinary.readouterr().out)))

    letters = tmp_path / "letters"
    skip = ["quarantine", stuck, "skip", "--region", "bern", "--rows", "0-1", "--yes"]
    assert main([*skip, "--dead-letter", str(letters)]) == 0
    same_in_parquet(pq.read_table(letters))
